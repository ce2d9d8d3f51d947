"""Measures the same work on other queues, beside this one: ``make bench-peers``."""
