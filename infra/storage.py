"""Defines the bucket of large batches: those that are too large for a row."""

from aws_cdk import Duration
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.buckets import private_bucket
from infra.encryption import Encryption, kept
from infra.settings import Settings

_LONGEST_DAYS = 30 + 1 + 1
"""The longest retention, also of dead letters, is 30 days; rows outlive it by up to a day, and S3 rounds up."""

_ARCHIVE_DAYS = 30
"""The further days with archiving: rows stay until they are archived, and an operator has a month to repair the archive
before an object is removed that a row still names."""


class Storage(Construct):
    def __init__(self, scope: Construct, name: str, settings: Settings, *, encryption: Encryption) -> None:
        super().__init__(scope, name)
        # Nothing below scheduled/ expires: a large batch waits for up to two years and is deleted with its bucket.
        days = _LONGEST_DAYS + _ARCHIVE_DAYS * settings.pipeline
        expired = s3.LifecycleRule(id="batches", prefix="batches/", expiration=Duration.days(days))
        self.bucket = private_bucket(self, "Batches", [expired], removal_policy=kept(settings), key=encryption.key)
