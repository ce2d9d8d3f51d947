"""A server for the examples."""

from tests.integration.conftest import server, start

__all__ = ["server", "start"]
