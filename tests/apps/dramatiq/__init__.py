"""Tests Hourwheel as the broker of Dramatiq."""
