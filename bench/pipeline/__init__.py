"""How fast the archive becomes a lake."""
