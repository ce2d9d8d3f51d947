"""Measures: computes counts and times by subject, group and hour."""
