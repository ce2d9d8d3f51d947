"""Pulls, hands over and settles the messages of consumers."""
