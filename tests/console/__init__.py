"""The console in a headless Chromium, against real servers."""
