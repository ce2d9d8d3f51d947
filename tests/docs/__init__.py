"""Tests the pages: their examples run, their links lead somewhere, their lists are complete."""
