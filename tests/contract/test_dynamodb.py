"""The DynamoDB adapter keeps its own promises: about its client, its tables, its requests, and its errors."""

from collections.abc import Iterable
from typing import Any

import botocore.exceptions
import pytest
from botocore.exceptions import BotoCoreError, ClientError
from botocore.retries.standard import ThrottledRetryableChecker
from moto import mock_aws

from hourwheel.adapters.aws import s3
from hourwheel.adapters.aws.dynamodb import DynamoStore, client, create_tables
from hourwheel.adapters.aws.errors import LOST_ANSWERS, THROTTLING_CODES, translated
from hourwheel.errors import Broken, Corrupt, OutcomeUnknown, Sealed, Throttled
from hourwheel.ports.storage import MAX_VALUE_BYTES, Counter, Key, Refused, Table

from . import wire
from .records import filled, record, stored
from .stores import PREFIX
from .wire import Wire

LOST = {
    "ChecksumError",
    "ConnectTimeoutError",
    "ConnectionClosedError",
    "ConnectionError",
    "EndpointConnectionError",
    "FlexibleChecksumError",
    "HTTPClientError",
    "IncompleteReadError",
    "ProxyConnectionError",
    "ReadTimeoutError",
    "ResponseStreamingError",
    "SSLError",
}


# Mistakes in the set-up or in the call: a retry changes nothing.
PERMANENT = """
    AliasConflictParameterError ApiVersionNotFoundError AwsChunkedWrapperError BaseEndpointResolverError
    BotoCoreError CapacityNotAvailableError ClientError ConfigNotFound ConfigParseError CredentialRetrievalError
    DataNotFoundError EndpointProviderError EndpointResolutionError EndpointVariantError EventStreamError
    InfiniteLoopConfigError InvalidChecksumConfigError InvalidConfigError InvalidDNSNameError InvalidDefaultsMode
    InvalidEndpointConfigurationError InvalidEndpointDiscoveryConfigurationError InvalidExpressionError
    InvalidHostLabelError InvalidIMDSEndpointError InvalidIMDSEndpointModeError InvalidMaxRetryAttemptsError
    InvalidProxiesConfigError InvalidRegionError InvalidRetryConfigurationError InvalidRetryModeError
    InvalidS3AddressingStyleError InvalidS3UsEast1RegionalEndpointConfigError
    InvalidSTSRegionalEndpointsConfigError LoginAuthorizationCodeError LoginError LoginInsufficientPermissions
    LoginRefreshRequired LoginTokenLoadError MD5UnavailableError MetadataRetrievalError MissingDependencyException
    MissingParametersError NoAuthTokenError NoCredentialsError NoRegionError OperationNotPageableError
    PaginationError ParamValidationError PartialCredentialsError ProfileNotFound RangeError
    RefreshWithMFAUnsupportedError SSOError SSOTokenLoadError ServiceNotInRegionError StubAssertionError
    StubResponseError TokenRetrievalError UnStubbedResponseError UnauthorizedSSOTokenError
    UnknownClientMethodError UnknownCredentialError UnknownEndpointError UnknownEndpointResolutionBuiltInName
    UnknownFIPSEndpointError UnknownKeyError UnknownParameterError UnknownRegionError UnknownServiceError
    UnknownServiceStyle UnknownSignatureVersionError UnknownTokenProviderError UnseekableStreamError
    UnsupportedOutpostResourceError UnsupportedS3AccesspointConfigurationError UnsupportedS3ArnError
    UnsupportedS3ConfigurationError UnsupportedS3ControlArnError UnsupportedS3ControlConfigurationError
    UnsupportedServiceProtocolsError UnsupportedSignatureVersionError ValidationError WaiterConfigError
    WaiterError
"""


@pytest.fixture
def spoilt(own_client: Any) -> Wire:
    return Wire(own_client)


def test_the_client_asks_once_and_gives_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "7")
    monkeypatch.setenv("AWS_RETRY_MODE", "adaptive")
    opened = client(region="eu-central-1", pool_size=7)
    config = opened.meta.config
    assert config.retries == {"mode": "standard", "total_max_attempts": 1}
    assert (config.connect_timeout, config.read_timeout) == (1.0, 2.0)
    assert config.max_pool_connections == 7
    assert opened.meta.endpoint_url == "https://dynamodb.eu-central-1.amazonaws.com"
    opened.close()


def test_the_s3_client_asks_three_times_at_most() -> None:
    opened = s3.client(region="eu-central-1")
    config = opened.meta.config
    assert config.retries == {"mode": "standard", "total_max_attempts": 3}
    assert (config.connect_timeout, config.read_timeout) == (1.0, 5.0)
    opened.close()


@pytest.mark.parametrize("fault", [wire.reply_lost, wire.throttled, wire.failed_before_effect, wire.connection_cut])
def test_one_add_makes_exactly_one_request(
    dynamodb: DynamoStore, spoilt: Wire, partition: str, fault: wire.Fault
) -> None:
    spoilt.faults.append(fault)
    with pytest.raises((Throttled, OutcomeUnknown)):
        dynamodb.add(partition, rows=1, numbers=1)
    assert spoilt.requests == 1


def test_an_add_whose_reply_was_lost_had_its_effect_once(dynamodb: DynamoStore, spoilt: Wire, partition: str) -> None:
    spoilt.faults.append(wire.reply_lost)
    with pytest.raises(OutcomeUnknown):
        dynamodb.add(partition, rows=1, numbers=5)
    assert dynamodb.counter(partition) == Counter(1, 5)


def test_a_refusal_brings_the_record_in_the_same_request(dynamodb: DynamoStore, spoilt: Wire, partition: str) -> None:
    key = Key(Table.PULL, partition, "1")
    holder = stored(dynamodb, key)
    before = spoilt.requests
    assert dynamodb.put(key, record(), expect=None) == Refused(holder)
    assert dynamodb.put(key, record(), expect=record().token) == Refused(holder)
    assert dynamodb.delete(key, expect=record().token) == Refused(holder)
    assert spoilt.requests == before + 3


def test_a_sealed_counter_refuses_in_one_request(dynamodb: DynamoStore, spoilt: Wire, partition: str) -> None:
    dynamodb.seal(partition)
    with pytest.raises(Sealed):
        dynamodb.add(partition, rows=1, numbers=1)
    assert spoilt.requests == 2


def test_a_trim_costs_nothing(dynamodb: DynamoStore, spoilt: Wire, partition: str) -> None:
    dynamodb.trim(Table.CONSUME, partition, below="z")
    assert spoilt.requests == 0


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_asks_for_page_after_page(own_client: Any, partition: str, reverse: bool) -> None:
    dynamodb = DynamoStore(own_client, prefix=PREFIX)
    whole = list(filled(dynamodb, partition, [f"{row:02d}" for row in range(10)]).items())[:: -1 if reverse else 1]

    def shorten(params: dict[str, Any], **_: Any) -> None:
        params["Limit"] = min(params["Limit"], 3)

    own_client.meta.events.register("provide-client-params.dynamodb.Query", shorten)
    counted = Wire(own_client)
    assert dynamodb.scan(Table.CONSUME, partition, limit=7, reverse=reverse) == whole[:7]
    assert counted.requests == 3
    assert dynamodb.scan(Table.CONSUME, partition, limit=6, reverse=reverse) == whole[:6]
    assert counted.requests == 5
    assert dynamodb.scan(Table.CONSUME, partition, limit=99, reverse=reverse) == whole


def test_a_page_that_ends_at_a_megabyte_is_not_the_end(moto_client: Any) -> None:
    """Runs on moto: the pages of ministack have no such end."""
    with mock_aws():
        create_tables(moto_client, PREFIX)
        dynamodb = DynamoStore(moto_client, prefix=PREFIX)
        for sort in "abcde":
            stored(dynamodb, Key(Table.CONSUME, "log", sort), bytes(MAX_VALUE_BYTES))
        counted = Wire(moto_client)
        assert len(dynamodb.scan(Table.CONSUME, "log", limit=5)) == 5
        assert counted.requests == 3


def test_reads_are_consistent_unless_asked_otherwise(own_client: Any, dynamodb: DynamoStore, partition: str) -> None:
    asked: list[bool] = []
    for operation in ("GetItem", "Query"):
        own_client.meta.events.register(
            f"provide-client-params.dynamodb.{operation}",
            lambda params, **_: asked.append(params["ConsistentRead"]),
        )
    dynamodb.counter(partition)
    dynamodb.get(Key(Table.META, partition, "1"))
    dynamodb.scan(Table.META, partition, limit=1)
    dynamodb.get(Key(Table.META, partition, "1"), consistent=False)
    dynamodb.scan(Table.META, partition, limit=1, consistent=False)
    assert asked == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("expires_ms", "seconds"), [(1_893_456_000_000, "1893456000"), (1_893_456_000_001, "1893456001")]
)
def test_the_time_to_live_is_in_seconds_rounded_up(
    own_client: Any, dynamodb: DynamoStore, partition: str, expires_ms: int, seconds: str
) -> None:
    dynamodb.put(Key(Table.KEYS, partition, "1"), record(expires_ms=expires_ms), expect=None)
    item = own_client.get_item(TableName=f"{PREFIX}-keys", Key={"pk": {"S": partition}, "sk": {"S": "1"}})["Item"]
    assert item["x"] == {"N": seconds}


def test_every_table_of_items_expires_them_and_counters_stay(own_client: Any, dynamodb: DynamoStore) -> None:
    def time_to_live(name: str) -> dict[str, str]:
        return dict(own_client.describe_time_to_live(TableName=f"{PREFIX}-{name}")["TimeToLiveDescription"])

    for table in Table:
        assert time_to_live(table) == {"TimeToLiveStatus": "ENABLED", "AttributeName": "x"}
    assert time_to_live("counters") == {"TimeToLiveStatus": "DISABLED"}


def test_an_item_that_is_no_record_is_corrupt(own_client: Any, dynamodb: DynamoStore, partition: str) -> None:
    own_client.put_item(TableName=f"{PREFIX}-keys", Item={"pk": {"S": partition}, "sk": {"S": "1"}})
    with pytest.raises(Corrupt, match=partition):
        dynamodb.get(Key(Table.KEYS, partition, "1"))


def test_a_refusal_that_a_retry_cannot_fix_names_its_code(dynamodb: DynamoStore, spoilt: Wire, partition: str) -> None:
    spoilt.faults.append(wire.refusal("AccessDeniedException"))
    with pytest.raises(Broken, match="AccessDeniedException"):
        dynamodb.counter(partition)


def test_a_table_that_is_not_there_is_broken(own_client: Any, partition: str) -> None:
    with pytest.raises(Broken, match="ResourceNotFoundException"):
        DynamoStore(own_client, prefix="elsewhere").counter(partition)


@pytest.mark.parametrize("fault", [wire.gateway_page, wire.reply_cut_off])
def test_an_answer_that_cannot_be_read_leaves_the_outcome_unknown(
    dynamodb: DynamoStore, spoilt: Wire, partition: str, fault: wire.Fault
) -> None:
    key = Key(Table.META, partition, "1")
    stored(dynamodb, key)
    spoilt.faults.append(fault)
    with pytest.raises(OutcomeUnknown):
        dynamodb.get(key)


def test_a_service_that_is_not_there_leaves_the_outcome_unknown(partition: str) -> None:
    nobody = client(region="us-east-1", endpoint_url="http://127.0.0.1:9")  # the discard port: nothing listens
    with pytest.raises(OutcomeUnknown, match="EndpointConnectionError"):
        DynamoStore(nobody, prefix=PREFIX).counter(partition)
    nobody.close()


@pytest.mark.parametrize("code", sorted(THROTTLING_CODES))
def test_each_throttling_code_is_throttled(dynamodb: DynamoStore, spoilt: Wire, partition: str, code: str) -> None:
    spoilt.faults.append(wire.refusal(code))
    with pytest.raises(Throttled, match=code):
        dynamodb.counter(partition)


def test_every_throttling_code_that_botocore_knows_is_known() -> None:
    known: list[str] = vars(ThrottledRetryableChecker)["_THROTTLED_ERROR_CODES"]
    assert set(known) - THROTTLING_CODES == {"EC2ThrottledException"}


def test_every_botocore_error_is_classified() -> None:
    """A new class fails here until a developer decides whether its call may have had an effect."""
    classes = {
        name: found
        for name, found in vars(botocore.exceptions).items()
        if isinstance(found, type) and issubclass(found, (BotoCoreError, ClientError))
    }
    lost = {name for name, found in classes.items() if issubclass(found, LOST_ANSWERS)}
    assert lost == LOST
    permanent = set(classes) - lost
    assert sorted(permanent) == PERMANENT.split()
    for name in lost:
        assert type(translated(classes[name].__new__(classes[name]))) is OutcomeUnknown
    for name in permanent - {"ClientError", "EventStreamError"}:
        assert type(translated(classes[name].__new__(classes[name]))) is Broken


RECORD = {"v": {"B": b"v"}, "t": {"B": bytes(16)}}


class Hesitant:
    """A service that answers a request for many keys in parts of ``most`` keys. It has no items under the keys that it
    ``lacks``."""

    def __init__(self, most: int, lacks: Iterable[str] = ()) -> None:
        self.most, self.lacks = most, set(lacks)
        self.asked: list[int] = []
        self.consistent: set[bool] = set()

    def batch_get_item(self, RequestItems: dict[str, Any]) -> dict[str, Any]:  # noqa: N803 - as botocore names it
        ((table, request),) = RequestItems.items()
        keys = request["Keys"]
        self.asked.append(len(keys))
        self.consistent.add(request["ConsistentRead"])
        held = {"rows": {"N": "1"}, "numbers": {"N": "9"}} if table == "p-counters" else RECORD
        items = [{**key, **held} for key in keys[: self.most] if key["pk"]["S"] not in self.lacks]
        rest = {table: {"Keys": keys[self.most :]}} if keys[self.most :] else {}
        return {"Responses": {table: items}, "UnprocessedKeys": rest}


def test_keys_that_were_left_out_are_requested_again() -> None:
    service = Hesitant(most=40)
    found = DynamoStore(service, prefix="p").get_many(Table.SCHEDULE, "log", [str(n) for n in range(100)])
    assert len(found) == 100
    assert service.asked == [100, 60, 20]


def test_a_service_that_reads_none_of_many_keys_throttles() -> None:
    with pytest.raises(Throttled):
        DynamoStore(Hesitant(most=0), prefix="p").get_many(Table.SCHEDULE, "log", ["0", "1"])


def test_counters_that_were_left_out_are_requested_again_and_missing_ones_are_zero() -> None:
    names = [str(number) for number in range(65)]
    service = Hesitant(most=40, lacks=names[:40])
    found = DynamoStore(service, prefix="p").counters(names)
    assert service.asked == [65, 25], "an answer without a single item is no refusal"
    assert service.consistent == {False}
    assert found == dict.fromkeys(names[:40], Counter(0, 0)) | dict.fromkeys(names[40:], Counter(1, 9))


def test_many_counters_are_read_consistently_where_that_is_asked_for() -> None:
    service = Hesitant(most=40)
    DynamoStore(service, prefix="p").counters(["0", "1"], consistent=True)
    assert service.consistent == {True}


def test_a_service_that_reads_none_of_many_counters_throttles() -> None:
    service = Hesitant(most=0)
    with pytest.raises(Throttled):
        DynamoStore(service, prefix="p").counters(["0", "1"])
    assert service.asked == [2]
