"""Runs the functions of the API on one machine: behind a local HTTP server, over SQLite and files."""
