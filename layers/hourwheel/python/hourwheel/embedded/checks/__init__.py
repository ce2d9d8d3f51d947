"""Checks of a data directory that no server has to run for: what must hold of everything that is stored."""
