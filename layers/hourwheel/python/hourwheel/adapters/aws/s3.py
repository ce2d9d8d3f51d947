"""Implements ``Blobs`` (large batches, and the archive) as objects of S3."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, cast

from botocore.config import Config
from botocore.exceptions import ClientError

from hourwheel.adapters.aws.clients import make_client
from hourwheel.adapters.aws.errors import error_code, translating
from hourwheel.adapters.limits import check_blob_key, check_range
from hourwheel.errors import Corrupt, NoAccess, NotFound

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# With these, three tries end within the 30 s for which API Gateway waits.
CONNECT_SECONDS = 1.0
READ_SECONDS = 5.0
ATTEMPTS = 3

# The codes of a missing object: GET answers the first, HEAD the second, because its answer has no body with a code.
_MISSING = frozenset({"NoSuchKey", "404"})


def client(*, region: str | None = None, endpoint_url: str | None = None, pool_size: int = 32) -> "S3Client":
    """Makes a client that sends each request up to three times. Unlike with DynamoDB the SDK may repeat requests: a
    repeated call of ``S3Blobs`` has no further effect, and an equal answer."""
    config = Config(
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        max_pool_connections=pool_size,
    )
    opened = make_client("s3", config, region=region, endpoint_url=endpoint_url)
    return cast("S3Client", opened)


class S3Blobs:
    """Implements ``Blobs`` in a bucket; every key of an object begins with ``prefix``. The first call makes the client,
    because most processes see no batch that is too large for its row; so several threads must not make their first
    call at once.

    The role needs ``s3:ListBucket``: without it S3 answers 403 for a missing object. Each call may raise ``Throttled``
    or ``OutcomeUnknown``, and may be repeated.
    """

    def __init__(self, open_client: "Callable[[], S3Client]", bucket: str, prefix: str = "") -> None:
        self._open_client = open_client
        self._bucket = bucket
        self._prefix = prefix

    @cached_property
    def _client(self) -> "S3Client":
        return self._open_client()

    def put(self, key: str, data: bytes) -> None:
        check_blob_key(key)
        with translating():
            try:
                self._client.put_object(Bucket=self._bucket, Key=self._prefix + key, Body=data, IfNoneMatch="*")
            except ClientError as error:
                # The object exists: an earlier try won, and its answer was lost.
                if error_code(error) != "PreconditionFailed":
                    raise

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        check_blob_key(key)
        check_range(offset, length)
        if length == 0:
            return self._nothing(key, offset)  # HTTP has no empty range
        data = self._fetch(key, offset, length)
        if data is None:
            return self._nothing(key, offset, length)
        if length is not None and len(data) < length:
            raise Corrupt(f"object {key} ends at {offset + len(data)}, before {offset + length}")
        return data

    def list(self, prefix: str) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix + prefix
        )
        with translating():
            keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        return sorted(key.removeprefix(self._prefix) for key in keys)

    def delete(self, key: str) -> None:
        check_blob_key(key)
        with translating():
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + key)

    def _fetch(self, key: str, offset: int, length: int | None) -> bytes | None:
        """Returns the bytes of the range, cut where the object ends, or None if the object ends before the range."""
        with _reading(key):
            if offset == 0 and length is None:  # without a range: S3 refuses every range of an empty object
                return self._client.get_object(Bucket=self._bucket, Key=self._prefix + key)["Body"].read()
            end = "" if length is None else offset + length - 1
            try:
                answer = self._client.get_object(
                    Bucket=self._bucket, Key=self._prefix + key, Range=f"bytes={offset}-{end}"
                )
            except ClientError as error:
                if error_code(error) != "InvalidRange":
                    raise
                return None
            return answer["Body"].read()

    def _nothing(self, key: str, offset: int, length: int | None = None) -> bytes:
        """Returns no bytes, for a range without any. Raises ``Corrupt`` if the object ends before the range does."""
        with _reading(key):
            size = self._client.head_object(Bucket=self._bucket, Key=self._prefix + key)["ContentLength"]
        end = offset + (length or 0)
        if end > size:
            raise Corrupt(f"object {key} ends at {size}, before {end}")
        return b""


class S3LakeFiles:
    """``LakeFiles`` in a bucket, whose ``blobs`` have the prefix of the lake. The role needs no right to list: S3 then
    answers 403 for a missing object, so a file that the role may not read counts as missing."""

    serves_report = False

    def __init__(self, blobs: S3Blobs) -> None:
        self._blobs = blobs

    def read(self, path: str) -> bytes | None:
        try:
            return self._blobs.get(path)
        except (NotFound, NoAccess):
            return None


@contextmanager
def _reading(key: str) -> Iterator[None]:
    with translating():
        try:
            yield
        except ClientError as error:
            if error_code(error) not in _MISSING:
                raise
            raise NotFound("blob-not-found", f"there is no object {key}") from error
