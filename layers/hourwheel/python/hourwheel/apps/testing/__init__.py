"""Implements the queue in memory, with a clock that the test moves."""
