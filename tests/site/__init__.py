"""Tests the site of ``make docs``, as it was built."""
