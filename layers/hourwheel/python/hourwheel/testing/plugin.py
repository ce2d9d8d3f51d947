"""Provides the fixture ``hourwheel_queue`` to pytest."""

from hourwheel.apps.testing.plugin import hourwheel_queue

__all__ = ["hourwheel_queue"]
