"""Defines the records that clients send, that the store keeps and that answers contain."""
