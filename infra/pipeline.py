"""The bucket of the lake: what is archived goes there."""

from aws_cdk import CfnOutput, Duration
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.buckets import private_bucket
from infra.settings import Settings


class Pipeline(Construct):
    def __init__(self, scope: Construct, name: str, settings: Settings) -> None:
        super().__init__(scope, name)
        rarely_read = s3.LifecycleRule(
            id="rarely-read",
            transitions=[
                s3.Transition(storage_class=s3.StorageClass.INTELLIGENT_TIERING, transition_after=Duration.days(30))
            ],
        )
        self.bucket = private_bucket(self, "Lake", [rarely_read], retain=settings.retain)
        CfnOutput(self, "LakeBucket", value=self.bucket.bucket_name).override_logical_id("LakeBucket")
