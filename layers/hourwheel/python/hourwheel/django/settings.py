"""Reads the setting ``HOURWHEEL`` of a project: the server, and how to reach it."""

from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

_NAMES = {"URL": "url", "TOKEN": "token", "CA_FILE": "ca_file", "SIGN": "sign", "REGION": "region"}


def relay_settings() -> dict[str, Any]:
    """Returns ``HOURWHEEL`` as arguments of ``Relay``. Raises ``ImproperlyConfigured`` for a name that it does not
    have."""
    configured = getattr(settings, "HOURWHEEL", {})
    unknown = sorted(set(configured) - set(_NAMES))
    if unknown:
        raise ImproperlyConfigured(f"HOURWHEEL has {', '.join(_NAMES)}, not {', '.join(unknown)}")
    return {_NAMES[name]: value for name, value in configured.items() if value is not None}
