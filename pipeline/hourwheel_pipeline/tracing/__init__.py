"""Reads the history of a message from the lake."""
