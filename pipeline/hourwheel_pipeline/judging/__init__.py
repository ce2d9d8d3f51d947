"""Judges the rows of the lake: checks, evidence, findings, and the integrity of the archive."""
