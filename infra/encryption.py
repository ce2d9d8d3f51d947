"""Encrypts tables, buckets, logs, queues, variables of functions and alarms with a key of the customer."""

from aws_cdk import Aws, CfnOutput, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from infra.settings import Settings

KEY_ACTIONS = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)
"""The actions that a role needs if DynamoDB, S3 or SQS use the key for its calls."""


class Encryption(Construct):
    """The key of a cell. ``key``: None if AWS's own keys are used, which cost nothing."""

    def __init__(self, scope: Construct, name: str, settings: Settings) -> None:
        super().__init__(scope, name)
        self.key: kms.Key | None = None
        if not settings.customer_key:
            return
        self.key = kms.Key(
            self,
            "Key",
            description=f"All that the Hourwheel cell {settings.cell} stores",
            enable_key_rotation=True,
            removal_policy=kept(settings),
        )
        self._for_logs(self.key)
        if settings.alarm_email is not None:
            self._for_alarms(self.key)
        CfnOutput(self, "KeyArn", value=self.key.key_arn).override_logical_id("KeyArn")

    def allow(self, role: iam.Role) -> None:
        """Lets the role read and write data under the key, within its other permissions."""
        if self.key is not None:
            role.add_to_policy(iam.PolicyStatement(actions=list(KEY_ACTIONS), resources=[self.key.key_arn]))

    def _for_logs(self, key: kms.Key) -> None:
        arn = f"arn:{Aws.PARTITION}:logs:{Aws.REGION}:{Aws.ACCOUNT_ID}:log-group:*"
        key.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal(f"logs.{Aws.REGION}.amazonaws.com")],
                actions=[*KEY_ACTIONS],
                resources=["*"],
                conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": arn}},
            )
        )

    def _for_alarms(self, key: kms.Key) -> None:
        """Allows CloudWatch to send alarms to the topic. The CDK allows EventBridge to send failed runs of the jobs to
        the queue of failures."""
        key.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["kms:Decrypt", "kms:GenerateDataKey"],
                resources=["*"],
                conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
            )
        )


def kept(settings: Settings) -> RemovalPolicy:
    """Returns the removal policy of a resource that outlives the stack. A deployment that fails removes what it
    created."""
    return RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if settings.retain else RemovalPolicy.DESTROY
