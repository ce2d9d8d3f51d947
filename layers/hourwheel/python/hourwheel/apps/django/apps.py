"""Declares the app to Django."""

from django.apps import AppConfig


class HourwheelConfig(AppConfig):
    """Declares the app ``hourwheel``. The names of its tables begin with ``hourwheel_``."""

    name = "hourwheel.apps.django"
    label = "hourwheel"
    verbose_name = "Hourwheel"
    default_auto_field = "django.db.models.BigAutoField"
