"""Defines the tables of the store, which ``hourwheel.adapters.aws.dynamodb`` describes."""

from aws_cdk import RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from infra.encryption import Encryption
from infra.settings import Settings

NAMES = ("meta", "counters", "consume", "pull", "keys", "schedule", "dispatch")

_EXPIRING = frozenset({"meta", "consume", "pull", "keys"})
"""The tables with expiry. Rows of schedule and dispatch are deleted with their bucket, after it was closed; counters
stay."""


OF_OTHER_CELLS = ("meta", "counters", "consume", "pull")
"""The tables of a cell other than the home cell, which holds logs of queues only."""

BUSY = ("counters", "consume", "pull")
"""The tables that each message passes."""

READ_BY_ALL = "meta"
"""The table of the home cell whose records each process reads every few seconds."""


class Tables(Construct):
    """The tables of a cell. ``cell``: another cell than the home cell. ``by_name``: the tables by their names without
    the prefix. With push, the table ``consume`` has a stream of keys."""

    def __init__(
        self, scope: Construct, name: str, settings: Settings, *, encryption: Encryption, cell: str | None = None
    ) -> None:
        super().__init__(scope, name)
        self._key = encryption.key
        self._prefix = table_prefix(settings, cell)
        self.by_name = {table: self._table(table, settings) for table in (OF_OTHER_CELLS if cell else NAMES)}

    def _table(self, name: str, settings: Settings) -> dynamodb.Table:
        def key(attribute: str) -> dynamodb.Attribute:
            return dynamodb.Attribute(name=attribute, type=dynamodb.AttributeType.STRING)

        return dynamodb.Table(
            self,
            name.capitalize(),
            table_name=f"{self._prefix}-{name}",
            partition_key=key("pk"),
            sort_key=None if name == "counters" else key("sk"),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            time_to_live_attribute="x" if name in _EXPIRING else None,
            stream=dynamodb.StreamViewType.KEYS_ONLY if settings.push and name == "consume" else None,
            encryption=None if self._key is None else dynamodb.TableEncryption.CUSTOMER_MANAGED,
            encryption_key=self._key,
            warm_throughput=_warm(settings) if name in BUSY else None,
            deletion_protection=settings.retain,
            # Kept also after a failed deployment: a protected table cannot be deleted, and the roll-back would fail.
            # The next deployment takes the table over by its name.
            removal_policy=RemovalPolicy.RETAIN if settings.retain else RemovalPolicy.DESTROY,
        )


def table_prefix(settings: Settings, cell: str | None = None) -> str:
    """Returns the first part of the tables' names. No deployment has a dot in its name, so the dot keeps the tables of
    another cell apart from the tables of all deployments."""
    return f"{settings.cell}.{cell}" if cell else settings.cell


def _warm(settings: Settings) -> dynamodb.WarmThroughput | None:
    """Returns the throughput that a table serves from the first second on: without it a new one serves 4,000 writes and
    12,000 reads a second, and grows by doubling."""
    if settings.warm_write_units is None and settings.warm_read_units is None:
        return None
    return dynamodb.WarmThroughput(
        write_units_per_second=settings.warm_write_units, read_units_per_second=settings.warm_read_units
    )
