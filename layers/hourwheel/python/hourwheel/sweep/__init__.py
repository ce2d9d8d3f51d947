"""Sweeps a deployment each minute, and erases deleted subjects and groups."""
