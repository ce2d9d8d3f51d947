"""Push: new rows start the function push, which calls the targets."""

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.functions import Functions
from infra.nag_suppressions import allow_below
from infra.permissions import TOGGLES_STREAM
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
            # The functions enable it with the first target of a group and disable it with the last: without a target,
            # an invocation for each row would cost as much as the rest of sending it.
            enabled=False,
            starting_position="LATEST",
            batch_size=1_000,  # keys only, and many rows of one subject are one thing to do
            # A row is written once, and its expiry needs no push.
            filter_criteria=lambda_.CfnEventSourceMapping.FilterCriteriaProperty(
                filters=[lambda_.CfnEventSourceMapping.FilterProperty(pattern='{"eventName":["INSERT"]}')]
            ),
            # The sweeper finds waiting rows anyway: old records must not hold up new ones. When the mapping is enabled
            # again, Lambda continues where it stopped and skips older records, which is not a failure.
            maximum_retry_attempts=-1,
            maximum_record_age_in_seconds=300,
            bisect_batch_on_function_error=True,
        )
        source.node.add_dependency(role)
        self._toggled_by(source, functions)

    def _toggled_by(self, source: lambda_.CfnEventSourceMapping, functions: Functions) -> None:
        arn = Stack.of(self).format_arn(
            service="lambda",
            resource="event-source-mapping",
            resource_name=source.ref,
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        for name in TOGGLES_STREAM:
            function = functions.by_name[name]
            function.add_environment("HOURWHEEL_PUSH_MAPPING", source.ref)
            function.add_to_role_policy(
                iam.PolicyStatement(
                    actions=["lambda:GetEventSourceMapping", "lambda:UpdateEventSourceMapping"], resources=[arn]
                )
            )
