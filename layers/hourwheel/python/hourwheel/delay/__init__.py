"""Delayed messages: buckets by the time at which they fall due, and the wheel that turns while one is open."""
