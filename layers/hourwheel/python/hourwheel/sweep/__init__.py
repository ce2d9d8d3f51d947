"""Sweeps a cell each minute, and erases deleted subjects and groups."""
