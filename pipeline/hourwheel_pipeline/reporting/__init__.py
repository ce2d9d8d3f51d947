"""Builds the report as a page and as JSON: one file each, without references to others."""
