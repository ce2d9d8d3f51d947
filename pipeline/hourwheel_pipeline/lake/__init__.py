"""Keeps the tables of the lake: their columns, files, catalogs, commits and progress."""
