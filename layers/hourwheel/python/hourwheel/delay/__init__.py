"""Delayed messages: turns the wheel of an open bucket, dispatches, cancels and reschedules."""
