"""The one-machine runtime."""
