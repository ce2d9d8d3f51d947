"""Stores the batches of producers."""
