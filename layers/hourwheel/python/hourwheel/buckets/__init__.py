"""Sorts delayed messages into buckets by the hour in which they fall due, and leases the wheels of the buckets."""
