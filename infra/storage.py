"""The bucket of the segments: batches that are too large for a row."""

from aws_cdk import Duration
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.buckets import private_bucket
from infra.encryption import Encryption, kept
from infra.settings import Settings

_LONGEST_DAYS = 30 + 1 + 1
"""No retention and no dead letter is longer than 30 days; a day during which rows outlive it; S3 rounds up."""

_ARCHIVE_DAYS = 30
"""Where rows are kept until they are archived, so long the archive may be behind before a segment goes that a row still
names: a month in which somebody can see to it."""


class Storage(Construct):
    def __init__(self, scope: Construct, name: str, settings: Settings, *, encryption: Encryption) -> None:
        super().__init__(scope, name)
        # Nothing below scheduled/ goes by age, ever: it waits for up to two years and is deleted with its bucket.
        days = _LONGEST_DAYS + _ARCHIVE_DAYS * settings.pipeline
        expired = s3.LifecycleRule(id="segments", prefix="segments/", expiration=Duration.days(days))
        self.bucket = private_bucket(self, "Segments", [expired], removal_policy=kept(settings), key=encryption.key)
