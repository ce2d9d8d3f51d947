"""Names the transport for the entry point of this package: see ``hourwheel.apps.celery.plugin``."""

from hourwheel.apps.celery.plugin import register, serializer

__all__ = ["register", "serializer"]
