"""Defines the bucket of the lake: the archive, the tables and the reports."""

from aws_cdk import CfnOutput, Duration
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.buckets import private_bucket
from infra.encryption import Encryption, kept
from infra.settings import Settings

ARCHIVE, LAKE, REPORTS, LOGS = "archive/", "lake/", "reports/", "logs/"
"""The prefixes of its keys. The first two are ``ARCHIVE_PREFIX`` and ``LAKE_PREFIX`` of ``hourwheel.aws.services``."""

LAST_RUNS = f"{LAKE}last-runs/"
"""The prefix of the results that jobs of the pipeline write for ``meta``: see ``hourwheel.model.last_runs``."""


class Lake(Construct):
    """The storage of the lake. ``bucket`` exists without the pipeline too, so that its content stays when the pipeline
    is switched off and on."""

    def __init__(self, scope: Construct, name: str, settings: Settings, *, encryption: Encryption) -> None:
        super().__init__(scope, name)
        rules = [
            s3.LifecycleRule(
                id="rarely-read",
                transitions=[
                    s3.Transition(storage_class=s3.StorageClass.INTELLIGENT_TIERING, transition_after=Duration.days(30))
                ],
            )
        ]
        if settings.pipeline:
            rules.append(s3.LifecycleRule(id="logs", prefix=LOGS, expiration=Duration.days(settings.log_days)))
        self.bucket = private_bucket(self, "Lake", rules, removal_policy=kept(settings), key=encryption.key)
        CfnOutput(self, "LakeBucket", value=self.bucket.bucket_name).override_logical_id("LakeBucket")
