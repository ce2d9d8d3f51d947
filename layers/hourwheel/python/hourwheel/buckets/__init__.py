"""Buckets of delayed messages by the hour in which they fall due, and the leases of the buckets' wheels."""
