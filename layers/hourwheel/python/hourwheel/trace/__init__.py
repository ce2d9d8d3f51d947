"""Traces the history of a message from the logs, while they are retained."""
