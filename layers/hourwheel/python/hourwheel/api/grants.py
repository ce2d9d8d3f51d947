"""Signs and checks the tokens of function URLs, each of which says what its bearer may do.

    token      "hwg_" and base64url, without padding, of: MAC, 16 bytes | AccessGrant, a msgpack array
    MAC        HMAC-SHA-256 over the array, with the key of the version that the grant names
    keys       table meta, partition "cell", sort "grant-keys": SigningKeys, a msgpack array

IAM grants a function URL as a whole, and not its paths. So a token names subjects and groups, and the functions check
it without a read: each process reads the keys once a minute.
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
from hourwheel.logs.cas import CasRecord, value_of
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

_EARLY_READS = 10
"""A process reads the keys at most this many times more within a minute. A token that names a later version is read for
before it is checked, so forged tokens could cost a read each."""

Pattern = Annotated[str, Meta(min_length=1, max_length=201)]


class AccessGrant(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """Says what the bearer of a token may do until ``expires_s``, in Unix seconds.

    The bearer may send to the subjects ``produce``, and pull for the groups ``pull``, each ``subject/group``; a last
    ``*`` in a name stands for any rest. With ``delayed`` the bearer may list the delayed messages of these subjects,
    and look up, move and cancel delayed messages of all subjects, because a scheduled id does not name its subject. A
    token in use is renewed for ``lifetime_s`` at a time, until ``until_s``. With ``caller``, the ARN of a role without
    its path or of a user, the token is of use to this caller alone.
    """

    version: int
    expires_s: int
    lifetime_s: int
    until_s: int
    produce: list[Pattern] = []
    pull: list[Pattern] = []
    delayed: bool = False
    caller: str | None = None

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


class SigningKeys(msgspec.Struct, array_like=True, frozen=True):
    """Holds the random keys that sign tokens: ``key`` of the current version, ``previous`` of the version before. There
    is no previous key for the first version, and after a revocation."""

    version: int
    key: bytes
    previous: bytes | None = None

    def of(self, version: int) -> bytes | None:
        """Returns the key of a version; None for a version whose tokens are not valid."""
        if version == self.version:
            return self.key
        return self.previous if version == self.version - 1 else None


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
    """Remembers, for one process, the keys that sign tokens."""

    def __init__(self) -> None:
        self._keys: SigningKeys | None = None
        self._read_ms: int | None = None
        self._early_reads = 0

    def current(self, context: Context, *, at_least: int = 0) -> SigningKeys | None:
        """Returns the current keys; None before the first token was created. Reads them once a minute, and at once
        where a token names a later version (``at_least``) than the remembered one, but only some times a minute."""
        if self._read_ms is None or context.clock.now_ms() - self._read_ms >= _REFRESH_MS:
            self._early_reads = _EARLY_READS
            self._read(context)
        elif self._early_reads and at_least > (0 if self._keys is None else self._keys.version):
            self._early_reads -= 1
            self._read(context)
        return self._keys

    def _read(self, context: Context) -> None:
        self._keys, self._read_ms = value_of(_record(context).load()), context.clock.now_ms()


def draw_keys(context: Context) -> SigningKeys:
    """Returns the current keys. Draws and stores those of the first version if there are none."""
    record = _record(context)
    current = record.load() or record.swap(None, SigningKeys(1, _random_key(context))).current
    assert current is not None
    return current.value


def rotate(context: Context, *, revoke: bool) -> int:
    """Draws the key of another version, and returns its number. Tokens of the version before stay valid until they
    expire; with ``revoke`` no token of an earlier version is valid any more."""
    record, key = _record(context), _random_key(context)
    current = record.load()
    while True:
        before = value_of(current)
        previous = None if before is None or revoke else before.key  # without it no earlier token is valid
        result = record.swap(current, SigningKeys(1 if before is None else before.version + 1, key, previous))
        if result.written is not None:
            return result.written.value.version
        current = result.current


def sign_grant(keys: SigningKeys, grant: AccessGrant) -> str:
    """Returns the token of a grant of the current version."""
    data = msgspec.msgpack.encode(grant)
    return _PREFIX + urlsafe_b64encode(_mac(keys.key, data) + data).rstrip(b"=").decode()


def open_grant(deployment: Deployment, token: str, keys: GrantKeys) -> OpenedGrant:
    """Returns the grant of a token, checked against the current keys.

    Raises ``Unauthenticated`` for a token that this deployment did not issue, that has expired, or whose version was
    revoked.
    """
    parts = _parts(token)
    if parts is None:
        raise _invalid()
    mac, data, grant = parts
    current = keys.current(deployment.context, at_least=grant.version)
    if current is None:
        raise _invalid()
    key = current.of(grant.version)
    if key is None and 0 < grant.version < current.version:
        raise Unauthenticated("grant-expired", "the token was revoked, or is of a key that was rotated: create another")
    if key is None or not hmac.compare_digest(mac, _mac(key, data)):
        raise _invalid()
    if grant.expires_s * 1_000 <= deployment.context.clock.now_ms():
        raise Unauthenticated("grant-expired", "the token has expired: create another one")
    return OpenedGrant(grant, current.version)


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


def _parts(token: str) -> tuple[bytes, bytes, AccessGrant] | None:
    """Returns the MAC of a token, the bytes under it, and the grant in these bytes, of which nothing is checked."""
    if not token.startswith(_PREFIX) or len(token) > MOST_TOKEN_CHARACTERS:
        return None
    text = token.removeprefix(_PREFIX)
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        mac, data = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        return mac, data, msgspec.msgpack.decode(data, type=AccessGrant)
    except UNDECODABLE:
        return None


def _invalid() -> Unauthenticated:
    detail = "the token was not issued by this deployment, or was changed: create another one"
    return Unauthenticated("grant-invalid", detail)


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, hashlib.sha256)[:_MAC_BYTES]


def _random_key(context: Context) -> bytes:
    return context.ids.token() + context.ids.token()  # 32 bytes, as many as the digest has


def _record(context: Context) -> CasRecord[SigningKeys]:
    return CasRecord(context.store, context.ids, Key(Table.META, "cell", "grant-keys"), SigningKeys)
