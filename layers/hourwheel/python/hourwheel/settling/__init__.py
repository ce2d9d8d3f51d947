"""Settles the messages that consumers hold, and ends the leases that are over."""
