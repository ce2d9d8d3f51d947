"""Lists and counts delayed messages for their operators."""
