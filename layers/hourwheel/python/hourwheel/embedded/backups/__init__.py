"""Backups of data directories while servers write to them, and new directories made from backups."""
