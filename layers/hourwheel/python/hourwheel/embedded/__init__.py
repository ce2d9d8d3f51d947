"""The one-machine runtime: the same functions behind a local HTTP server, over SQLite and files."""
