"""Moves messages from a source record into target logs exactly once, which is called a hand-over."""
