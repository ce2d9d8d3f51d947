"""Reads the archive: manifests, segments, and their rows of messages, pulls and dispatches."""
