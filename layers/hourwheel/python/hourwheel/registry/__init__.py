"""Subjects and groups: looked up, made, changed, deleted."""
