"""Keeps work on some cells going while others are out of reach, and collects which ones are."""
