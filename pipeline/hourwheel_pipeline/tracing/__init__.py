"""Tracing: reads the history of a message from the lake."""
