"""Checks: each compares what two logs say of the same messages."""
