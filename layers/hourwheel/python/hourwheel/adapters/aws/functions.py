"""Starts Lambda functions without waiting for their results, and switches the stream that starts ``push``."""

import json
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, cast

from botocore.config import Config
from botocore.exceptions import ClientError

from hourwheel.adapters.aws.clients import make_client
from hourwheel.adapters.aws.errors import error_code, translating

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

# With these, three tries end within the 30 s for which API Gateway waits.
CONNECT_SECONDS = 1.0
READ_SECONDS = 5.0
ATTEMPTS = 3


def patient_config() -> Config:
    """Returns the configuration for calls that the SDK may repeat, because repeating them does no harm."""
    return Config(
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
    )


class LambdaCaller:
    """Has a client of Lambda whose calls the SDK may repeat. The first call makes the client, because most processes
    never need one; so several threads must not make their first call at once."""

    def __init__(self, *, region: str | None, endpoint_url: str | None) -> None:
        self._region = region
        self._endpoint_url = endpoint_url

    @cached_property
    def client(self) -> "LambdaClient":
        client = make_client("lambda", patient_config(), region=self._region, endpoint_url=self._endpoint_url)
        return cast("LambdaClient", client)


class AsyncFunction(LambdaCaller):
    """A Lambda function that is started without waiting for its result."""

    def __init__(self, arn: str, *, region: str | None = None, endpoint_url: str | None = None) -> None:
        super().__init__(region=region, endpoint_url=endpoint_url)
        self.arn = arn

    def start(self, event: object) -> None:
        """Orders an invocation of the function with this event. Lambda invokes it soon, perhaps twice. Raises
        ``Unavailable``, and ``Broken`` for a refusal."""
        with translating():
            answer = self.client.invoke(FunctionName=self.arn, InvocationType="Event", Payload=json.dumps(event))
            # The payload is empty, but the connection can be used again only once the payload was read.
            answer["Payload"].read()


class MappedStream(LambdaCaller):
    """Implements ``StoredStream``: enables and disables event source mappings, one for each cell.

    A mapping that is always on costs $0.41 for a million rows that are pushed to nobody, more than to send them in
    batches. Only the sweeper disables it: a call that removes the last target cannot see a target that is set at the
    same moment. It is not deleted and created, because IAM cannot narrow the creation to one mapping.
    """

    def __init__(self, mappings: Sequence[str], *, region: str | None = None, endpoint_url: str | None = None) -> None:
        super().__init__(region=region, endpoint_url=endpoint_url)
        self._mappings = mappings

    def listen(self, on: bool) -> None:
        for mapping in self._mappings:
            self.switch(mapping, on)

    def switch(self, mapping: str, on: bool) -> bool:
        """Enables or disables a mapping, unless it is changing. Returns whether it already had the state."""
        # Read first, which costs nothing: an update takes the mapping out of service for seconds.
        with translating():
            state = self.client.get_event_source_mapping(UUID=mapping)["State"]
            if state == ("Disabled" if on else "Enabled"):
                self._update(mapping, on)
            return state == ("Enabled" if on else "Disabled")

    def _update(self, mapping: str, on: bool) -> None:
        try:
            self.client.update_event_source_mapping(UUID=mapping, Enabled=on)
        except ClientError as error:
            # Another process is changing the mapping: the next sweep looks at the result.
            if error_code(error) not in ("ResourceInUseException", "ResourceConflictException"):
                raise


class LambdaPushes:
    """Implements ``Pushes``: starts the Lambda function ``push`` for each group."""

    def __init__(self, function: AsyncFunction) -> None:
        self._function = function

    def start(self, subject: str, group: str) -> None:
        self._function.start({"push": {"subject": subject, "group": group}})
