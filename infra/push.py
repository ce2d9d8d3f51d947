"""Makes the streams of new rows start the function push, which calls the targets."""

from collections.abc import Sequence

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.cells import Cells
from infra.functions import Functions
from infra.nag_suppressions import allow_below
from infra.permissions import TOGGLES_STREAM
from infra.settings import Settings, arn_of
from infra.tables import Tables

_ACTIONS = {"lambda": "lambda:InvokeFunction", "sqs": "sqs:SendMessage", "events": "events:PutEvents"}


class Push(Construct):
    def __init__(
        self,
        scope: Construct,
        name: str,
        settings: Settings,
        *,
        tables: Tables,
        cells: Cells,
        functions: Functions,
    ) -> None:
        super().__init__(scope, name)
        role = functions.by_name["push"].role
        assert isinstance(role, iam.Role)
        # Two entries may name one target for different subjects.
        for target in dict.fromkeys(filter(None, map(arn_of, settings.push_targets))):
            action = _ACTIONS[target.split(":")[2]]
            if "*" in target:
                allow_below(role, [action], target, "The operator has named the targets so, in push_targets.")
            else:
                role.add_to_policy(iam.PolicyStatement(actions=[action], resources=[target]))
        others = [(Construct(self, cell), storage.tables) for cell, storage in cells.by_name.items()]
        sources = [
            self._source(scope, of_cell.by_name["consume"], role, functions)
            for scope, of_cell in [(self, tables), *others]
        ]
        self._toggled_by(sources, functions)

    def _source(
        self, scope: Construct, table: dynamodb.Table, role: iam.Role, functions: Functions
    ) -> lambda_.CfnEventSourceMapping:
        """Lets the stream of a table start the function."""
        assert table.table_stream_arn is not None
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
            "Lambda checks this before it maps a stream, and names no stream then: these are the streams of one table.",
        )
        source = lambda_.CfnEventSourceMapping(
            scope,
            "Stored",
            function_name=functions.by_name["push"].function_name,
            event_source_arn=table.table_stream_arn,
            # Not ``enabled``: a deployment would switch back what the functions or an operator have switched. They
            # enable it with the first target of a group; without one the next sweep disables it, as an invocation for
            # each row would cost as much as the rest of sending it.
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
        return source

    def _toggled_by(self, sources: Sequence[lambda_.CfnEventSourceMapping], functions: Functions) -> None:
        arns = [
            Stack.of(self).format_arn(
                service="lambda",
                resource="event-source-mapping",
                resource_name=source.ref,
                arn_format=ArnFormat.COLON_RESOURCE_NAME,
            )
            for source in sources
        ]
        for name in TOGGLES_STREAM:
            function = functions.by_name[name]
            function.add_environment("HOURWHEEL_PUSH_MAPPING", ",".join(source.ref for source in sources))
            function.add_to_role_policy(
                iam.PolicyStatement(
                    actions=["lambda:GetEventSourceMapping", "lambda:UpdateEventSourceMapping"], resources=arns
                )
            )
