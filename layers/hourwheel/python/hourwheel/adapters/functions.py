"""Starts Lambda functions without waiting for their results, and switches the stream that starts ``push``."""

import json
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, cast

from botocore.config import Config
from botocore.exceptions import ClientError

from hourwheel.adapters.aws import make_client
from hourwheel.adapters.aws_errors import error_code, translating

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

# Three tries end within the 30 s that API Gateway waits.
CONNECT_SECONDS = 1.0
READ_SECONDS = 5.0
ATTEMPTS = 3


def patient_config() -> Config:
    """Returns the configuration for calls that the SDK may repeat, because a second call has no further effect."""
    return Config(
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
    )


class LambdaCaller:
    """Calls Lambda with repeats, as a second call has no further effect. The first call makes the client: most
    processes never make one. Several threads must not make their first call at once."""

    def __init__(self, *, region: str | None, endpoint_url: str | None) -> None:
        self._region = region
        self._endpoint_url = endpoint_url

    @cached_property
    def client(self) -> "LambdaClient":
        client = make_client("lambda", patient_config(), region=self._region, endpoint_url=self._endpoint_url)
        return cast("LambdaClient", client)


class AsyncFunction(LambdaCaller):
    """The function with an ARN."""

    def __init__(self, arn: str, *, region: str | None = None, endpoint_url: str | None = None) -> None:
        super().__init__(region=region, endpoint_url=endpoint_url)
        self.arn = arn

    def start(self, event: object) -> None:
        """Has Lambda call the function with the event soon, perhaps twice. Raises ``Unavailable``."""
        with translating():
            answer = self.client.invoke(FunctionName=self.arn, InvocationType="Event", Payload=json.dumps(event))
            # The payload is empty, but its connection is free for the next call only once it was read.
            answer["Payload"].read()


class MappedStream(LambdaCaller):
    """``StoredStream`` by event source mappings, one for each cell, which it enables and disables."""

    def __init__(self, mappings: Sequence[str], *, region: str | None = None, endpoint_url: str | None = None) -> None:
        super().__init__(region=region, endpoint_url=endpoint_url)
        self._mappings = mappings

    def listen(self, on: bool) -> None:
        for mapping in self._mappings:
            self.switch(mapping, on)

    def switch(self, mapping: str, on: bool) -> bool:
        """Enables or disables one mapping; returns whether it was so already."""
        # Reading the state costs nothing; an update takes the mapping out of service for seconds.
        with translating():
            state = self.client.get_event_source_mapping(UUID=mapping)["State"]
            if state == ("Disabled" if on else "Enabled"):
                self._update(mapping, on)
            return state == ("Enabled" if on else "Disabled")

    def _update(self, mapping: str, on: bool) -> None:
        try:
            self.client.update_event_source_mapping(UUID=mapping, Enabled=on)
        except ClientError as error:
            # Another process is changing the mapping at this moment: the next sweep checks the result.
            if error_code(error) not in ("ResourceInUseException", "ResourceConflictException"):
                raise


class LambdaPushes:
    """``Pushes`` that starts the Lambda function ``push`` for each group."""

    def __init__(self, function: AsyncFunction) -> None:
        self._function = function

    def start(self, subject: str, group: str) -> None:
        self._function.start({"push": {"subject": subject, "group": group}})
