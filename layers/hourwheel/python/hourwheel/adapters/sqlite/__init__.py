"""Implements the store on SQLite."""
