"""Signs requests for AWS (Signature Version 4), as an API with IAM authorisation requires.

botocore finds the credentials (environment, profiles, SSO, roles, the machine's own), renews those that expire, and
signs. This module imports botocore only if requests have to be signed.
"""

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import urlsplit

from hourwheel.client.errors import AnswerError, ClientError, ServerUnavailable, Unauthorized, problem_of
from hourwheel.locks import gives_back

if TYPE_CHECKING:
    from botocore.credentials import Credentials, ReadOnlyCredentials

    from hourwheel.client.transport.urls import FrontUrls

Sign: TypeAlias = Literal["aws"]

LAMBDA_URL = re.compile(r"[a-z0-9]+\.lambda-url\.(?P<region>[a-z0-9-]+)\.on\.aws")
"""The host of a function URL."""

EXECUTE_API = re.compile(r"(?P<api>[a-z0-9]+)\.execute-api\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?")

_DATE = "X-Amz-Date"
_DATE_FORM = "%Y%m%dT%H%M%SZ"
_SKEW_SECONDS = 240  # AWS allows 300 s; the rest is for the time that the answer takes

_INVOKE_URL = "lambda:InvokeFunctionUrl and lambda:InvokeFunction for"

_EXTRA = "requests for AWS are signed by botocore, which is not installed: pip install 'hourwheel[aws]'"


class Signer:
    """Signs the requests to one API, or to the functions that ``urls`` knows. Thread-safe. Looks up the credentials at
    the first request."""

    def __init__(self, url: str, region: str | None, urls: "FrontUrls | None" = None) -> None:
        try:
            import botocore.auth
            import botocore.session  # noqa: F401 - here, so that a missing package fails the constructor
        except ImportError as error:
            raise ClientError(_EXTRA) from error
        parts = urlsplit(url)
        named = (EXECUTE_API if urls is None else LAMBDA_URL).fullmatch(parts.hostname or "")
        self._origin = f"{parts.scheme}://{parts.netloc}"
        self._urls = urls
        self._service, self._action = ("execute-api", "execute-api:Invoke") if urls is None else ("lambda", _INVOKE_URL)
        self._region = region or (named["region"] if named else None) or _configured_region()
        self._forget()

    def _forget(self) -> None:
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._credentials: Credentials | None = None

    def headers(self, method: str, target: str, body: bytes | None, content_type: str | None) -> dict[str, str]:
        """Returns the headers that sign a request now, with the target exactly as it is sent.

        Raises ``Unauthorized`` if there are no credentials, and ``ServerUnavailable`` if their source does not answer.
        """
        # The signature covers only fields that proxies leave unchanged: host, type, date, path, and the body's hash.
        fields = {} if content_type is None else {"content-type": content_type}
        origin = self._origin if self._urls is None else self._urls.origin(method, target)
        return self.signed(method, origin + target, body, fields, service=self._service, region=self._region)

    def signed(
        self, method: str, url: str, body: bytes | None, fields: dict[str, str], *, service: str, region: str
    ) -> dict[str, str]:
        """Returns the headers that sign a request to a service of AWS now, ``fields`` among them, with the same
        credentials and errors as ``headers``."""
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        request = AWSRequest(method=method, url=url, data=body, headers=fields)
        with _translated():
            SigV4Auth(self._frozen(), service, region).add_auth(request)
        return dict(request.headers.items())

    def explained(
        self, error: AnswerError, method: str, target: str, signed: dict[str, str], date: str | None
    ) -> AnswerError:
        """Returns the error; for a refused signature, an error that says what to do. ``date`` is that of the answer."""
        if not isinstance(error, Unauthorized) or error.slug != "forbidden":
            return error
        reason = error.problem.title
        skew_seconds = _skew_seconds(signed, date)
        if skew_seconds:
            ahead = "ahead" if skew_seconds > 0 else "behind"
            slug, advice = "clock-wrong", f"the clock of this machine is {abs(skew_seconds)} s {ahead}: set it"
        elif reason.startswith(("Signature expired", "Signature not yet current")):
            slug, advice = "clock-wrong", "the clock of this machine is wrong: set it"
        elif "security token" in reason:
            # The next request looks the credentials up again: a person may have written new ones into a file.
            self._credentials = None
            slug, advice = "credentials-expired", "log in again, or renew the credentials that this process was given"
        else:
            slug = "iam-refused"
            advice = (
                f"check that the identity (aws sts get-caller-identity) may {self._action} {method} "
                f"{target.partition('?')[0]}, that it belongs to the account of the API, and that the API is in "
                f"{self._region}"
            )
        detail = f"AWS refused the signed request ({error.status}: {reason}): {advice}"
        return Unauthorized(problem_of(slug, detail, status=error.status, title=reason))

    @gives_back
    def _frozen(self) -> "ReadOnlyCredentials":
        """Returns an unchanging copy of the current credentials. Raises ``Unauthorized`` if none are found."""
        import botocore.session

        if self._process != os.getpid():
            self._forget()  # after a fork, threads of the parent may hold this lock and that of the credentials
        with self._lock:
            if self._credentials is None:
                self._credentials = botocore.session.Session().get_credentials()
            credentials = self._credentials
        if credentials is None:
            raise _refused(
                "credentials-missing",
                "no AWS credentials were found to sign with: set AWS_PROFILE, or log in, or give this machine a role",
            )
        return credentials.get_frozen_credentials()


def signer_of(
    url: str, *, token: str | None, sign: Sign | None, region: str | None, urls: "FrontUrls | None" = None
) -> Signer | None:
    """Returns the signer of requests to this URL; None if they are not signed.

    Requests to API Gateway and to function URLs (``urls``) are always signed, others with ``sign="aws"``. Raises
    ``ValueError`` for arguments that contradict each other.
    """
    if sign not in {None, "aws"}:
        raise ValueError(f"sign is 'aws' or left out, got {sign!r}")
    if urls is not None:
        return Signer(url, region, urls)
    if sign is None and not EXECUTE_API.fullmatch(urlsplit(url).hostname or ""):
        if region is not None:
            raise ValueError("a region is only for signed requests: give sign='aws' too")
        return None
    if token is not None:
        raise ValueError("give a token, or sign for AWS, not both: an API of AWS takes signatures and no token")
    return Signer(url, region)


def _configured_region() -> str:
    import botocore.session

    with _translated():
        region = botocore.session.Session().get_config_variable("region")
    if not region:
        raise ValueError("the URL does not name the region of the API: give region, or set AWS_DEFAULT_REGION")
    return str(region)


def _skew_seconds(signed: dict[str, str], date: str | None) -> int:
    """Returns the seconds by which this machine's clock is ahead of the server's; 0 where AWS tolerates the skew."""
    try:
        answered_at = parsedate_to_datetime(date or "")
        signed_at = datetime.strptime(signed[_DATE], _DATE_FORM).replace(tzinfo=UTC)
        skew_seconds = round((signed_at - answered_at).total_seconds())
    except (ValueError, TypeError):  # no date, or one without a zone
        return 0
    return skew_seconds if abs(skew_seconds) > _SKEW_SECONDS else 0


def _refused(slug: str, detail: str) -> Unauthorized:
    return Unauthorized(problem_of(slug, detail))


@contextmanager
def _translated() -> Iterator[None]:
    """Translates the errors that botocore raises while it fetches credentials.

    Raises ``ServerUnavailable`` if the source of the credentials does not answer, because a retry may help. Raises
    ``Unauthorized`` for all other errors, about which a person has to do something.
    """
    from botocore import exceptions

    unreachable = (
        exceptions.HTTPClientError,
        exceptions.ConnectionError,
        exceptions.MetadataRetrievalError,
        exceptions.CredentialRetrievalError,
    )
    try:
        yield
    except unreachable as error:
        problem = problem_of("credentials-unavailable", f"the AWS credentials cannot be fetched: {error}")
        raise ServerUnavailable(problem, sent=False) from error
    except (exceptions.BotoCoreError, exceptions.ClientError, RuntimeError) as error:
        # botocore raises RuntimeError for credentials that have expired although they were renewed.
        raise _refused("credentials-refused", f"there are no AWS credentials to sign with: {error}") from error
