"""Keeps the rows of a group's pull logs: what its consumers hold, and what they have settled."""
