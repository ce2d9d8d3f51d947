"""Implements the command line ``hourwheel``."""
