"""Measures: what is counted and timed by subject, group and hour."""
