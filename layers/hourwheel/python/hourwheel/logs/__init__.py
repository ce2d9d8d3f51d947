"""Logs: a counter and write-once rows, their batches, large ones included, and records changed by compare-and-set."""
