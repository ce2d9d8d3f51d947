"""Checks that the server answers, and creates and revokes tokens for function URLs."""

from collections.abc import Sequence
from operator import attrgetter

from hourwheel.client.calls.call import Calls, answers
from hourwheel.client.records.health import CreatedGrant, GrantVersion, Health
from hourwheel.client.transport.codec import path


class HealthCalls(Calls):
    def health(self) -> Health:
        """Checks that the server answers, and returns its version. Needs no token; without one it returns no version of
        a server that has tokens.

        Raises:
            ServerUnavailable: no server answers.

        Example:
            >>> api.health().status
            'ok'
        """
        health: Health = self._http.call("GET", path("health"), answers(Health))
        return health

    def create_grant(
        self,
        *,
        produce: Sequence[str] = (),
        pull: Sequence[str] = (),
        delayed: bool = False,
        seconds: int = 43_200,
        renew_seconds: int = 0,
        caller: str | None = None,
    ) -> CreatedGrant:
        """Creates a token for function URLs. Its bearer may send to the subjects ``produce``, and pull and settle for
        the groups ``pull``, each ``subject/group``; a last ``*`` stands for the rest of a name.

        With ``delayed`` the bearer may also list the delayed messages of these subjects, and look up, move and cancel
        delayed messages of any subject. The token is valid for ``seconds`` (60 to 604,800). Clients that use it renew
        it by themselves, for ``renew_seconds`` (0 to 34,560,000) from now on. With ``caller``, the ARN of an IAM role
        or user, the token is refused to all others.

        Raises:
            BadRequest: a subject, a group, a time or an ARN is wrong, or the names are too long for one token.
            Unauthorized: the caller is no operator of the deployment.
            NotFound: the server has no function URLs.

        Example:
            >>> try:
            ...     api.create_grant(produce=["orders"], pull=["orders/billing"])
            ... except NotFound as error:
            ...     print(error.slug)
            route-unknown
        """
        body = {
            "produce": list(produce),
            "pull": list(pull),
            "delayed": delayed,
            "seconds": seconds,
            "renew_seconds": renew_seconds,
            **({} if caller is None else {"caller": caller}),
        }
        created: CreatedGrant = self._http.call("POST", path("grants"), answers(CreatedGrant), body=body)
        return created

    def rotate_grants(self, *, revoke: bool = False) -> int:
        """Draws another key for the tokens of function URLs, and returns its version. Tokens of the key before stay
        valid until they expire, and those in use are renewed under the new key; tokens of earlier keys are refused
        within a minute, and with ``revoke`` all are.

        Raises:
            Unauthorized: the caller is no operator of the deployment.
            NotFound: the server has no function URLs.

        Example:
            >>> try:
            ...     api.rotate_grants(revoke=True)
            ... except NotFound as error:
            ...     print(error.slug)
            route-unknown
        """
        target, kind, version = path("grants", "rotate"), answers(GrantVersion), attrgetter("version")
        rotated: int = self._http.call("POST", target, kind, body={"revoke": revoke}, safe=False, then=version)
        return rotated
