"""The ports on real things."""
