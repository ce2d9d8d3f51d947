"""Tests the console in a headless Chromium, against real servers."""
