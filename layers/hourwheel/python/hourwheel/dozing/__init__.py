"""Lets the consumers of idle groups wait at a queue instead of in pulls, and wakes them."""
