"""Push: what is stored wakes the function push, which calls the targets."""

from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.acknowledging import allow_below
from infra.functions import Functions
from infra.settings import Settings
from infra.tables import Tables

_ACTIONS = {"lambda": "lambda:InvokeFunction", "sqs": "sqs:SendMessage", "events": "events:PutEvents"}


class Push(Construct):
    def __init__(
        self, scope: Construct, name: str, settings: Settings, *, tables: Tables, functions: Functions
    ) -> None:
        super().__init__(scope, name)
        function, table = functions.by_name["push"], tables.by_name["consume"]
        role = function.role
        assert isinstance(role, iam.Role)
        assert table.table_stream_arn is not None
        for target in settings.push_targets:
            action = _ACTIONS[target.split(":")[2]]
            if "*" in target:
                allow_below(role, [action], target, "Who deploys has named the targets so, in push_targets.")
            else:
                role.add_to_policy(iam.PolicyStatement(actions=[action], resources=[target]))
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["dynamodb:DescribeStream", "dynamodb:GetRecords", "dynamodb:GetShardIterator"],
                resources=[table.table_stream_arn],
            )
        )
        allow_below(
            role,
            ["dynamodb:ListStreams"],
            f"{table.table_arn}/stream/*",
            "Lambda asks for it before it maps a stream, and it names no stream: these are the streams of one table.",
        )
        source = lambda_.CfnEventSourceMapping(
            self,
            "Stored",
            function_name=function.function_name,
            event_source_arn=table.table_stream_arn,
            starting_position="LATEST",
            batch_size=1_000,  # keys only, and many rows of one subject are one thing to do
            # A row is written once; that it expires is no news.
            filter_criteria=lambda_.CfnEventSourceMapping.FilterCriteriaProperty(
                filters=[lambda_.CfnEventSourceMapping.FilterProperty(pattern='{"eventName":["INSERT"]}')]
            ),
            # The sweeper finds what waits all the same: old news must not hold up what follows.
            maximum_retry_attempts=-1,
            maximum_record_age_in_seconds=300,
            destination_config=lambda_.CfnEventSourceMapping.DestinationConfigProperty(
                on_failure=lambda_.CfnEventSourceMapping.OnFailureProperty(destination=functions.failures.queue_arn)
            ),
        )
        source.node.add_dependency(role)
