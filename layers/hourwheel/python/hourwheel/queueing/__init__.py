"""Produces, pulls and settles messages, and keeps retries and dead letters."""
