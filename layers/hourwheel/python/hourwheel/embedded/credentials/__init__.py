"""Reads tokens and keys, and decides what a request may do."""
