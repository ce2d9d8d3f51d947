"""Lambda functions that are started and not waited for."""

import json
from functools import cached_property
from typing import TYPE_CHECKING, cast

from botocore.config import Config
from botocore.exceptions import ClientError

from hourwheel.adapters.aws import make_client
from hourwheel.adapters.awserrors import error_code, translating

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

CONNECT_SECONDS = 1.0
READ_SECONDS = 5.0
ATTEMPTS = 3


def patient_config() -> Config:
    """For calls that the SDK may repeat: what was done twice is as good as done once."""
    return Config(
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
    )


class AsyncFunction:
    """The function of an ARN. Its client is made when it is started first: most processes start none. Not for threads
    that start their first ones at once."""

    def __init__(self, arn: str, *, region: str | None = None, endpoint_url: str | None = None) -> None:
        self.arn = arn
        self._region = region
        self._endpoint_url = endpoint_url

    @cached_property
    def client(self) -> "LambdaClient":
        client = make_client("lambda", patient_config(), region=self._region, endpoint_url=self._endpoint_url)
        return cast("LambdaClient", client)

    def start(self, event: object) -> None:
        """Has the function called with the event soon, perhaps twice. Raises ``Unavailable``."""
        with translating():
            answer = self.client.invoke(FunctionName=self.arn, InvocationType="Event", Payload=json.dumps(event))
            # Empty; until it is read its connection is not free for the next call.
            answer["Payload"].read()


class MappedStream:
    """``StoredStream`` by an event source mapping, which is enabled and disabled. Its client is made when it is asked
    for first. Not for threads that ask for it at once for the first time."""

    def __init__(self, mapping: str, *, region: str | None = None, endpoint_url: str | None = None) -> None:
        self._mapping = mapping
        self._region = region
        self._endpoint_url = endpoint_url

    @cached_property
    def client(self) -> "LambdaClient":
        # What is asked for twice is as good as asked for once.
        client = make_client("lambda", patient_config(), region=self._region, endpoint_url=self._endpoint_url)
        return cast("LambdaClient", client)

    def listen(self, wanted: bool) -> None:
        # A look costs nothing; an update takes the mapping out of service for seconds.
        with translating():
            state = self.client.get_event_source_mapping(UUID=self._mapping)["State"]
            if state == ("Disabled" if wanted else "Enabled"):
                self._update(wanted)

    def _update(self, wanted: bool) -> None:
        try:
            self.client.update_event_source_mapping(UUID=self._mapping, Enabled=wanted)
        except ClientError as error:
            # Somebody else changes it at this moment: the next sweep looks at what became of that.
            if error_code(error) not in ("ResourceInUseException", "ResourceConflictException"):
                raise


class LambdaPushes:
    """``Pushes`` by the function ``push``."""

    def __init__(self, function: AsyncFunction) -> None:
        self._function = function

    def start(self, subject: str, group: str) -> None:
        self._function.start({"push": {"subject": subject, "group": group}})
