"""Implements the broker of Dramatiq."""
