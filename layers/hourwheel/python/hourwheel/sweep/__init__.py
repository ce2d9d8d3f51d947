"""The periodic repairs of a cell."""
