"""Hands out the messages of a key in their order, one at a time to all consumers of a group."""
