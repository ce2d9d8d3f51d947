"""Queueing: produces, pulls, settles, and keeps retries and dead letters."""
