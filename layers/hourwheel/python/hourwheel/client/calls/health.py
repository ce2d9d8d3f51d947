"""Checks that the server answers."""

from hourwheel.client.calls.call import Calls, answers
from hourwheel.client.codec import path
from hourwheel.client.records.health import Health


class HealthCalls(Calls):
    def health(self) -> Health:
        """Checks that the server answers, and returns its version. Needs no token.

        Raises:
            ServerUnavailable: no server answers.

        Example:
            >>> api.health().status
            'ok'
        """
        health: Health = self._http.call("GET", path("health"), answers(Health))
        return health
