"""Produce, pull, settle, retry, dead letters, groups."""
