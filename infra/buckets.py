"""Defines the common settings of the buckets."""

from collections.abc import Sequence

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.nag_suppressions import acknowledge


def private_bucket(
    scope: Construct,
    name: str,
    rules: Sequence[s3.LifecycleRule],
    *,
    removal_policy: RemovalPolicy,
    key: kms.IKey | None,
) -> s3.Bucket:
    """Creates a bucket that is encrypted, answers over TLS only, and is never public. S3 removes unfinished uploads
    after a day."""
    bucket = s3.Bucket(
        scope,
        name,
        encryption=s3.BucketEncryption.S3_MANAGED if key is None else s3.BucketEncryption.KMS,
        encryption_key=key,
        bucket_key_enabled=None if key is None else True,  # otherwise each object costs a request to KMS
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        enforce_ssl=True,
        minimum_tls_version=1.2,
        lifecycle_rules=[
            s3.LifecycleRule(id="uploads-left-half-done", abort_incomplete_multipart_upload_after=Duration.days(1)),
            *rules,
        ],
        removal_policy=removal_policy,
    )
    acknowledge(
        bucket,
        "S1",
        "Only the functions of this stack come here, millions of times a day where there is traffic: a log of each"
        " access costs more than it tells. CloudTrail's data events give one to those who must have it.",
    )
    return bucket
