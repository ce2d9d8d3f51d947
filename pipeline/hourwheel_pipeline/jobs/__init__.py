"""Contains a module for each job of the pipeline, and finds jobs by their names."""
