"""Tests the product as its users run it."""
