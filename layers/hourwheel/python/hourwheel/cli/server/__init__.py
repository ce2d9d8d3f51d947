"""Serves the API and the console on one machine."""
