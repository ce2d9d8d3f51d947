"""Translates botocore's errors into the library's; no other module does."""

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import (
    BotoCoreError,
    ChecksumError,
    ClientError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
)
from botocore.exceptions import ConnectionError as NoConnectionError
from botocore.parsers import ResponseParserError

from hourwheel.errors import Broken, HourwheelError, NoAccess, OutcomeUnknown, Throttled

# With these the service refused the request before it looked at the data.
THROTTLING_CODES = frozenset(
    {
        "BandwidthLimitExceeded",
        "ConditionalRequestConflict",  # S3: another upload of the key was under way, this one was dropped
        "LimitExceededException",
        "PriorRequestNotComplete",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "Throttling",
        "ThrottledException",
        "ThrottlingException",
        "TooManyRequestsException",
        "TransactionConflictException",  # a transaction had locked the item: the single write was refused
        "TransactionInProgressException",
    }
)

# With these the service failed while it carried the request out. So it did with any status from 500.
UNKNOWN_CODES = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
    }
)

# A table or bucket was deleted, its key is disabled, or the role may not use it.
_NO_ACCESS_CODES = frozenset(
    {
        "403",  # S3's answer to HEAD, which has no body to name a code in
        "AccessDenied",
        "AccessDeniedException",
        "KMS.DisabledException",
        "NoSuchBucket",
        "ResourceNotFoundException",
    }
)

# No answer came, or a damaged one. A connection that was never made counts too: that is not always certain, as a proxy
# may answer for the service, and repeating the call is right in both cases.
LOST_ANSWERS = (
    ChecksumError,
    NoConnectionError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    ResponseParserError,
)

FOREIGN = (BotoCoreError, ClientError, ResponseParserError)


def error_code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", "Unknown"))


def translated(error: Exception) -> HourwheelError:
    """Returns the library's error for an error of botocore: ``Throttled`` or ``OutcomeUnknown`` if the call may be
    repeated, ``NoAccess`` if the storage cannot be used, otherwise ``Broken``. The text has the code of the service."""
    if isinstance(error, LOST_ANSWERS):
        return OutcomeUnknown(f"{type(error).__name__}: {error}")
    if not isinstance(error, ClientError):
        return Broken(f"{type(error).__name__}: {error}")
    code = error_code(error)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in THROTTLING_CODES or status == 429:  # before the status: S3 sends SlowDown as a 503
        return Throttled(str(error))
    if code in UNKNOWN_CODES or status >= 500:
        return OutcomeUnknown(str(error))
    return (NoAccess if code in _NO_ACCESS_CODES else Broken)(f"{code}: {error}")


@contextmanager
def translating() -> Iterator[None]:
    """Raises the library's errors in place of botocore's."""
    try:
        yield
    except FOREIGN as error:
        raise translated(error) from error
