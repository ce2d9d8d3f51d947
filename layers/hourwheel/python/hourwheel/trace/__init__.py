"""Traces: what became of a message, read from the logs while they are retained."""
