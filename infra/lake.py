"""The bucket of the lake: the archive, and what is made of it."""

from aws_cdk import CfnOutput, Duration
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.buckets import private_bucket
from infra.encryption import Encryption, kept
from infra.settings import Settings

ARCHIVE, LAKE, REPORTS, LOGS = "archive/", "lake/", "reports/", "logs/"
"""What its keys begin with. The first is ``ARCHIVE_PREFIX`` of ``hourwheel.api.services``."""


class Lake(Construct):
    """``bucket``: it is there without the pipeline, too, so that switching that off and on keeps what it holds."""

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
