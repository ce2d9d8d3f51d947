"""Logs: a counter and write-once rows, their batches and segments, and records changed by compare-and-set."""
