"""Declares the app to Django, which looks for it here: see ``hourwheel.apps.django.apps``."""

from hourwheel.apps.django.apps import HourwheelConfig

__all__ = ["HourwheelConfig"]
