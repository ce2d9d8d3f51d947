"""Subjects and groups."""
