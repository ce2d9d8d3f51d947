"""Gathers the messages of producers into requests, and delivers their results."""
