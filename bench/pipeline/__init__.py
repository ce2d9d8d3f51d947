"""Measures the speed of compacting an archive into a lake."""
