"""Implements logs (a counter and write-once rows), the batches in them, and records changed by compare-and-set."""
