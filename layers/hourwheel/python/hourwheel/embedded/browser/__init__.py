"""Serves the console to a browser on this machine."""
