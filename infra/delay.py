"""Clocks: the schedules that start wheels, made by the functions at run time, and the one that starts the sweeper."""

from aws_cdk import Aws, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from infra.names import function_arn
from infra.settings import Settings


class Delay(Construct):
    """``group`` is the name of the schedule group, ``role`` the one with which Scheduler starts the wheel."""

    def __init__(self, scope: Construct, name: str, settings: Settings) -> None:
        super().__init__(scope, name)
        self.group = settings.cell
        self._group = scheduler.CfnScheduleGroup(self, "Group", name=self.group)
        self.role = self._caller("WheelCaller", function_arn(self, settings.cell, "wheel"))

    @property
    def schedules_arn(self) -> str:
        """Of every schedule in the group."""
        return Stack.of(self).format_arn(service="scheduler", resource="schedule", resource_name=f"{self.group}/*")

    def sweep_with(self, function: lambda_.IFunction) -> None:
        """Starts the sweeper each minute."""
        scheduler.CfnSchedule(
            self,
            "Sweep",
            group_name=self._group.ref,
            schedule_expression="rate(1 minute)",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=function.function_arn,
                role_arn=self._caller("SweepCaller", function.function_arn).role_arn,
                # The next minute brings the next sweep.
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                    maximum_event_age_in_seconds=60, maximum_retry_attempts=0
                ),
            ),
        )

    def _caller(self, name: str, function: str) -> iam.Role:
        """A role with which Scheduler starts one function, for schedules of this group only."""
        group_arn = Stack.of(self).format_arn(service="scheduler", resource="schedule-group", resource_name=self.group)
        conditions = {"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID, "aws:SourceArn": group_arn}}
        role = iam.Role(self, name, assumed_by=iam.ServicePrincipal("scheduler.amazonaws.com", conditions=conditions))
        role.add_to_policy(iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[function]))
        return role
