"""Chooses the messages that a claim takes: their range, filter, share of retries, and the growth of rows."""
