"""Signs and checks the tokens of function URLs, each of which says what its bearer may do.

    token      "hwg_" and base64url, without padding, of: MAC, 16 bytes | AccessGrant, a msgpack array
    MAC        HMAC-SHA-256 over the array, with a key of the version that the grant names
    key        HMAC-SHA-256 over "grant {version}", with the secret of the deployment
    version    table meta, partition "cell", sort "grants": a number that grows with each rotation

IAM grants a function URL as a whole, and not its paths. So a token names subjects and groups, and the functions check
it without a read: the secret of the deployment is read once in each process, the version once a minute.
"""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from hourwheel.api.routes import keys_of
from hourwheel.context import Context
from hourwheel.deployment.deployment import Deployment
from hourwheel.errors import UNDECODABLE, NotGranted, Unauthenticated
from hourwheel.logs.cas import CasRecord, token_of
from hourwheel.ports.storage import Key, Table

_PREFIX = "hwg_"
_MAC_BYTES = 16  # 128 bits cannot be guessed; the other half of the digest would only lengthen each token
MOST_TOKEN_CHARACTERS = 4_000
"""With its token a request fits into the 8 KB that proxies allow for headers."""

_CONSUME, _PRODUCE, _DELAYED = keys_of("consume"), keys_of("produce"), keys_of("delayed")
_PRODUCE_MANY = "POST /v1/messages"
OPEN = frozenset({"GET /v1/health", "GET /v1/endpoints"})
"""Routes that need no token: IAM has admitted the caller, and the answers tell nothing about messages."""

_REFRESH_MS = 60_000
"""A process learns of a rotation within this time."""

Pattern = Annotated[str, Meta(min_length=1, max_length=201)]


class AccessGrant(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Says what the bearer of a token may do until ``expires_s``, in Unix seconds.

    The bearer may send to the subjects ``produce``, and pull for the groups ``pull``, each ``subject/group``; a last
    ``*`` in a name stands for any rest. With ``delayed`` the bearer may list the delayed messages of these subjects,
    and look up, move and cancel delayed messages of all subjects, because a scheduled id does not name its subject. A
    token in use is renewed for ``lifetime_s`` at a time, until ``until_s``.
    """

    version: int
    expires_s: int
    lifetime_s: int
    until_s: int
    produce: list[Pattern] = []
    pull: list[Pattern] = []
    delayed: bool = False

    def produces(self, subject: str) -> bool:
        return any(_matches(pattern, subject) for pattern in self.produce)

    def pulls(self, subject: str, group: str) -> bool:
        for pattern in self.pull:
            of_subject, _, of_group = pattern.partition("/")
            if _matches(of_subject, subject) and _matches(of_group, group):
                return True
        return False

    def permits(self, route: str, names: dict[str, str]) -> bool:
        """Returns whether the grant allows a request, as far as its path says. ``POST /v1/messages`` names its subjects
        in its body: ``check_subject`` checks them."""
        if route in _CONSUME:
            return self.pulls(names["subject"], names["group"])
        if route in _PRODUCE:
            return self.produces(names["subject"])
        if route in _DELAYED:
            return self.delayed and ("subject" not in names or self.produces(names["subject"]))
        return route == _PRODUCE_MANY and bool(self.produce)


class OpenedGrant(NamedTuple):
    """Holds the grant of a request's token, and the version of the key that was current when the token was checked."""

    grant: AccessGrant
    version: int


def check_subject(grant: AccessGrant | None, subject: str, field: str) -> None:
    """Raises ``NotGranted`` if the grant of a request does not allow sending to the subject. An operator's request has
    no grant (None) and may send to every subject."""
    if grant is not None and not grant.produces(subject):
        raise NotGranted(
            "grant-insufficient",
            f"the token does not allow sending to subject {subject!r}, and nothing was stored: create one that does",
            field=field,
        )


def _matches(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else pattern == name


class GrantKeys:
    """Remembers, for one process, the current version of the key that signs tokens."""

    def __init__(self) -> None:
        self._version = 0
        self._read_ms: int | None = None

    def current(self, context: Context, *, at_least: int = 0) -> int:
        """Returns the current version. Reads it at most once a minute, and at once where a token names a later version
        (``at_least``) than the remembered one."""
        expired = self._read_ms is None or context.clock.now_ms() - self._read_ms >= _REFRESH_MS
        return self.read(context) if expired or at_least > self._version else self._version

    def read(self, context: Context) -> int:
        """Reads the current version from the store, remembers it, and returns it."""
        record = _record(context).load()
        self._version, self._read_ms = 0 if record is None else record.value, context.clock.now_ms()
        return self._version


def rotate(context: Context, *, revoke: bool) -> int:
    """Begins another version of the key, and returns its number. Tokens of the version before stay valid until they
    expire; with ``revoke`` no token of an earlier version is valid any more."""
    record = _record(context)
    current = record.load()
    while True:
        # Tokens of the version and of the one before are valid: to revoke is to skip a version.
        version = (0 if current is None else current.value) + (2 if revoke else 1)
        result = record.swap(token_of(current), version)
        if result.stored:
            return version
        current = result.current


def sign_grant(deployment: Deployment, grant: AccessGrant) -> str:
    """Returns the token of a grant."""
    data = msgspec.msgpack.encode(grant)
    return _PREFIX + urlsafe_b64encode(_mac(deployment.secret, grant.version, data) + data).rstrip(b"=").decode()


def open_grant(deployment: Deployment, token: str, keys: GrantKeys) -> OpenedGrant:
    """Returns the grant of a token, checked against the current version.

    Raises ``Unauthenticated`` for a token that this deployment did not issue, that has expired, or whose version was
    revoked.
    """
    grant = _opened(deployment.secret, token)
    if grant is None:
        raise Unauthenticated(
            "grant-invalid", "the token was not issued by this deployment, or was changed: create another one"
        )
    if grant.expires_s * 1_000 <= deployment.context.clock.now_ms():
        raise Unauthenticated("grant-expired", "the token has expired: create another one")
    version = keys.current(deployment.context, at_least=grant.version)
    if not 0 <= version - grant.version <= 1:
        raise Unauthenticated("grant-expired", "the token was revoked: create another one")
    return OpenedGrant(grant, version)


def renewed(checked: OpenedGrant, version: int, now_ms: int) -> AccessGrant | None:
    """Returns the grant that replaces a request's grant. Returns None in the first half of its lifetime, if it may not
    be renewed, or if ``version``, the current one, is no longer that of the check."""
    # The token may have been revoked during the request: signed with a later version it would be valid again.
    if version != checked.version:
        return None
    grant = checked.grant
    now_s = now_ms // 1_000
    expires_s = min(now_s + grant.lifetime_s, grant.until_s)
    # Not in the first half of the lifetime: else each answer to a busy caller would carry another token.
    early = grant.expires_s - now_s > grant.lifetime_s // 2
    if early or expires_s <= grant.expires_s:
        return None
    return msgspec.structs.replace(grant, version=version, expires_s=expires_s)


def _opened(secret: bytes, token: str) -> AccessGrant | None:
    if not token.startswith(_PREFIX) or len(token) > MOST_TOKEN_CHARACTERS:
        return None
    text = token.removeprefix(_PREFIX)
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        mac, data = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        # Decoded before the MAC is checked, because the grant names the version of the key; used only if it is right.
        grant = msgspec.msgpack.decode(data, type=AccessGrant)
    except UNDECODABLE:
        return None
    return grant if hmac.compare_digest(mac, _mac(secret, grant.version, data)) else None


def _mac(secret: bytes, version: int, data: bytes) -> bytes:
    key = hmac.digest(secret, f"grant {version}".encode(), hashlib.sha256)
    return hmac.digest(key, data, hashlib.sha256)[:_MAC_BYTES]


def _record(context: Context) -> CasRecord[int]:
    return CasRecord(context.store, context.ids, Key(Table.META, "cell", "grants"), int)
