"""Computes counts and times by subject, group and hour."""
