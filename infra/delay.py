"""Defines the schedules of a cell: the group of those that start wheels, which the functions create at run time, and
those that start functions again and again."""

from aws_cdk import Aws, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from infra.names import function_arn
from infra.settings import Settings


class Delay(Construct):
    """The schedules of a cell. ``group``: the name of the schedule group. ``role``: the role with which Scheduler
    starts the wheel."""

    def __init__(self, scope: Construct, name: str, settings: Settings) -> None:
        super().__init__(scope, name)
        self.group = settings.cell
        self._group = scheduler.CfnScheduleGroup(self, "Group", name=self.group)
        self.role = self._caller("WheelCaller", function_arn(self, settings.cell, "wheel"))

    @property
    def group_ref(self) -> str:
        """Returns the name of the schedule group as a reference: a resource that uses it is created after the group."""
        return str(self._group.ref)

    @property
    def schedules_arn(self) -> str:
        """Returns the ARN pattern of all schedules in the group."""
        return Stack.of(self).format_arn(service="scheduler", resource="schedule", resource_name=f"{self.group}/*")

    def tend_with(self, function: lambda_.IFunction) -> None:
        """Adds the schedule that starts the function ``delayed`` each minute, which starts the sweeper."""
        self._repeat("Sweep", function, "rate(1 minute)")

    def archive_with(self, function: lambda_.IFunction, minutes: int) -> None:
        """Adds the schedule that starts the archiver, once in this many minutes."""
        self._repeat("Archive", function, f"rate({minutes} minutes)")

    def _repeat(self, name: str, function: lambda_.IFunction, expression: str) -> None:
        caller = self._caller(f"{name}Caller", function.function_arn)
        schedule = scheduler.CfnSchedule(
            self,
            name,
            group_name=self.group_ref,
            schedule_expression=expression,
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=function.function_arn,
                role_arn=caller.role_arn,
                # No retry: the next run does the work of a missed one.
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                    maximum_event_age_in_seconds=60, maximum_retry_attempts=0
                ),
            ),
        )
        schedule.node.add_dependency(caller)  # with its policy: otherwise the first calls are refused

    def _caller(self, name: str, function: str) -> iam.Role:
        """Creates a role with which Scheduler starts one function."""
        role = self.scheduler_role(self, name)
        role.add_to_policy(iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[function]))
        return role

    def scheduler_role(self, scope: Construct, name: str) -> iam.Role:
        """Creates a role that Scheduler may assume, for schedules of this group only."""
        group_arn = Stack.of(self).format_arn(service="scheduler", resource="schedule-group", resource_name=self.group)
        conditions = {"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID, "aws:SourceArn": group_arn}}
        return iam.Role(scope, name, assumed_by=iam.ServicePrincipal("scheduler.amazonaws.com", conditions=conditions))
