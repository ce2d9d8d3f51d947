"""The tables of the store, as ``hourwheel.adapters.dynamodb`` draws them."""

from aws_cdk import RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from constructs import Construct

from infra.encryption import Encryption
from infra.settings import Settings

NAMES = ("meta", "counters", "consume", "pull", "keys", "schedule", "dispatch")

_EXPIRING = frozenset({"meta", "consume", "pull", "keys"})
"""Rows of schedule and dispatch go with their bucket, which is closed first: never by age. Counters are for ever."""


BUSY = ("counters", "consume", "pull")
"""Those that each message goes through."""


class Tables(Construct):
    """``by_name``: each table, without its prefix. The table consume has a stream of keys if there is push."""

    def __init__(self, scope: Construct, name: str, settings: Settings, *, encryption: Encryption) -> None:
        super().__init__(scope, name)
        self._key = encryption.key
        self.by_name = {table: self._table(table, settings) for table in NAMES}

    def _table(self, name: str, settings: Settings) -> dynamodb.Table:
        def key(attribute: str) -> dynamodb.Attribute:
            return dynamodb.Attribute(name=attribute, type=dynamodb.AttributeType.STRING)

        return dynamodb.Table(
            self,
            name.capitalize(),
            table_name=f"{settings.cell}-{name}",
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
            # Not but those of a failed deployment: a protected table cannot be deleted, and the roll-back would fail.
            # Its name is the same the next time, which takes it over.
            removal_policy=RemovalPolicy.RETAIN if settings.retain else RemovalPolicy.DESTROY,
        )


def _warm(settings: Settings) -> dynamodb.WarmThroughput | None:
    """What a table bears from the first second on: a new one bears 4,000 writes and 12,000 reads a second, and grows by
    doubling."""
    if settings.warm_write_units is None and settings.warm_read_units is None:
        return None
    return dynamodb.WarmThroughput(
        write_units_per_second=settings.warm_write_units, read_units_per_second=settings.warm_read_units
    )
