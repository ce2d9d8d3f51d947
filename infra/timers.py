"""Defines precise timers: a queue of delayed messages, each of which starts a wheel at its second."""

from aws_cdk import ArnFormat, Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.encryption import Encryption

WHEEL_SECONDS = 900
"""The time-out of the function wheel: Lambda reads no queue that hides messages for less."""

_RECEIVES = 2  # a message that names no bucket goes to the queue of failures after a second try


class TimerQueue(Construct):
    """The ``queue`` of a cell's precise timers, and its ``url``. Messages that the function gives back end in
    ``failures``."""

    def __init__(self, scope: Construct, name: str, *, failures: sqs.Queue, encryption: Encryption) -> None:
        super().__init__(scope, name)
        key = encryption.key
        self.queue = sqs.Queue(
            self,
            "Queue",
            encryption=sqs.QueueEncryption.SQS_MANAGED if key is None else sqs.QueueEncryption.KMS,
            encryption_master_key=key,
            # With the default of five minutes, a queue that is busy all month would cost $0.44 for requests to KMS.
            data_key_reuse=None if key is None else Duration.days(1),
            enforce_ssl=True,
            visibility_timeout=Duration.seconds(WHEEL_SECONDS),
            # Longer than a timer waits and two tries take. An older timer is of no use: the sweeper has started the
            # wheel.
            retention_period=Duration.hours(1),
            dead_letter_queue=sqs.DeadLetterQueue(max_receive_count=_RECEIVES, queue=failures),
        )
        self.url = self.queue.queue_url

    def allow(self, role: iam.Role) -> None:
        """Allows the role to order timers."""
        role.add_to_policy(iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[self.queue.queue_arn]))

    def start(self, wheel: lambda_.Function, delayed: lambda_.Function) -> None:
        """Lets the queue start the function ``wheel`` while the function ``delayed`` keeps the mapping enabled."""
        role = wheel.role
        assert isinstance(role, iam.Role)
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"],
                resources=[self.queue.queue_arn],
            )
        )
        source = lambda_.CfnEventSourceMapping(
            self,
            "Timers",
            function_name=wheel.function_name,
            event_source_arn=self.queue.queue_arn,
            # Not ``enabled``: a deployment would switch back what the functions or an operator have switched. Lambda
            # polls the queue some 650,000 times a month, which costs $0.26: the function ``delayed`` disables it while
            # no timers wait.
            batch_size=10,
            function_response_types=["ReportBatchItemFailures"],
        )
        source.node.add_dependency(role)
        delayed.add_environment("HOURWHEEL_TIMER_MAPPING", source.ref)
        arn = Stack.of(self).format_arn(
            service="lambda",
            resource="event-source-mapping",
            resource_name=source.ref,
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        delayed.add_to_role_policy(
            iam.PolicyStatement(
                actions=["lambda:GetEventSourceMapping", "lambda:UpdateEventSourceMapping"], resources=[arn]
            )
        )
