"""Measures the speed of the jobs of the pipeline."""
