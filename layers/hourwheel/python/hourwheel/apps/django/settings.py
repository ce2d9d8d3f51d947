"""Reads the setting ``HOURWHEEL`` of a project: the URL of the server, and the access to it."""

from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

_NAMES = {"URL": "url", "TOKEN": "token", "CA_FILE": "ca_file", "SIGN": "sign", "REGION": "region"}


def relay_settings() -> dict[str, Any]:
    """Returns the setting ``HOURWHEEL`` as arguments of ``Relay``. Raises ``ImproperlyConfigured`` for an unknown
    name."""
    configured = getattr(settings, "HOURWHEEL", {})
    unknown = sorted(set(configured) - set(_NAMES))
    if unknown:
        raise ImproperlyConfigured(f"the setting HOURWHEEL may have {', '.join(_NAMES)}, not {', '.join(unknown)}")
    return {_NAMES[name]: value for name, value in configured.items() if value is not None}
