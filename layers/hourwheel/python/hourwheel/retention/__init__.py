"""Knows how far each log is archived, so that no row is removed before it is archived."""
