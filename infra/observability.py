"""Defines the alarms and the dashboard of a cell.

There are 30 alarms: 12 of them for tables, 1 for push, 1 for precise timers; with the pipeline 7 more, and 10 for the
tables of each other cell. Each looks at one metric, ``ServerErrors`` at two. An alarm costs $0.10 a month for each
metric that it looks at, and ten metrics are free in an account. The dashboard costs $3 a month, and three are free.
"""

from collections.abc import Sequence

from aws_cdk import Aws, CfnOutput, Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.api import Api
from infra.encryption import Encryption
from infra.functions import Functions
from infra.settings import Settings
from infra.tables import BUSY, NAMES, OF_OTHER_CELLS, READ_BY_ALL, table_prefix
from infra.urls import FRONTED

_PERIOD = Duration.minutes(5)
_DAY = Duration.days(1)
_SUSTAINED = (2, 3)
"""(periods that breach, periods): a fault that passes by itself raises no alarm."""

_INTERVALS_BEHIND = 3
"""The archive is one interval behind just before a run, and two if a run was missed."""

_CONCURRENCY = cloudwatch.Metric(
    namespace="AWS/Lambda", metric_name="ConcurrentExecutions", statistic="Maximum", period=_PERIOD
)
"""A metric of the whole account in this region: all its functions share one limit."""

_MOST_CONCURRENCY = 0.8  # leaves time to raise a quota before calls are refused

_LONGEST_SWEEP_SECONDS = 120  # longer, and checkpoints and leases of groups without consumers fall behind

_MOST_OVERDUE_SECONDS = 150
"""A wheel that died is replaced within a minute and a half: its lease lasts 30 s, and the next look comes a minute
later."""

_MOST_BUSY_PERCENT = 80  # leaves time to raise ``shards`` before delayed messages are late

TABLE_UNITS = 40_000
"""Units a second, for writes and for reads: the quota of a table on demand, unless it was raised."""

_MOST_OF_TABLE = 0.8  # leaves time to raise the quota before requests are refused

_LAG = (
    'filter message = "lag"',
    "stats latest(waiting) as Waiting, latest(in_flight) as InFlight, latest(retrying) as Retrying,"
    " latest(held_keys) as HeldKeys, latest(oldest_seconds) as OldestSeconds by subject, group",
    "sort OldestSeconds desc",
    "limit 50",
)


class Observability(Construct):
    def __init__(
        self,
        scope: Construct,
        name: str,
        settings: Settings,
        *,
        functions: Functions,
        api: Api | None,
        encryption: Encryption,
    ) -> None:
        super().__init__(scope, name)
        self._key = encryption.key
        self._settings, self._functions, self._api = settings, functions, api
        self._tables = [f"{settings.cell}-{table}" for table in NAMES]
        self._tables += [
            f"{table_prefix(settings, cell)}-{table}" for cell in settings.cells for table in OF_OTHER_CELLS
        ]
        self._names = {key: function.function_name for key, function in functions.by_name.items()}
        self._refusals: logs.MetricFilter | None = None
        # CloudWatch makes no metrics from logs of the class Infrequent Access.
        self._counts_refusals = api is not None and settings.access_log_class == "standard"
        self._topic = self._alarm_topic(settings.alarm_email)
        self._alarms = self._make_alarms()
        if settings.dashboard:
            self._make_dashboard()

    def _alarm_topic(self, email: str | None) -> sns.Topic | None:
        if email is None:
            return None
        topic = sns.Topic(self, "AlarmTopic", enforce_ssl=True, master_key=self._key)
        # A topic with a policy accepts only messages that the policy allows.
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}},
            )
        )
        topic.add_subscription(subscriptions.EmailSubscription(email))
        CfnOutput(self, "AlarmTopicArn", value=topic.topic_arn).override_logical_id("AlarmTopicArn")
        return topic

    def _make_alarms(self) -> list[cloudwatch.Alarm]:
        settings, alarm, own = self._settings, self._alarm, self._own
        failures = self._functions.failures.metric_approximate_number_of_messages_visible
        alarms = [
            alarm("Faults", own("Faults"), 0),
            alarm("UnreadableMessages", own("UnreadableMessages"), 0),
            alarm("OldestMessage", own("OldestMessageSeconds", "Maximum"), settings.alarm_oldest_seconds),
            alarm("DeadLetters", own("DeadLetters"), settings.alarm_dead_letters),
            alarm("DispatchLateness", own("DispatchLateness", "p99"), 1_000),
            alarm("Throttles", own("Throttles"), 0, _SUSTAINED),
            self._stopped("SweepStopped", own("SweepSeconds", "SampleCount"), periods=3),
            alarm("SweepLong", own("SweepSeconds", "Maximum"), _LONGEST_SWEEP_SECONDS, _SUSTAINED),
            alarm("DelayedOverdue", own("OverdueDelayedSeconds", "Maximum"), _MOST_OVERDUE_SECONDS),
            alarm("WheelBusy", own("WheelBusyPercent", "Maximum"), _MOST_BUSY_PERCENT, _SUSTAINED),
            alarm("FailedInvocations", failures(statistic="Maximum", period=_PERIOD), 0),
            alarm("ServerErrors", self._server_errors(), 0, _SUSTAINED),
            alarm("ProduceThrottled", self._of_function("produce", "Throttles"), 0),
            alarm("PullThrottled", self._of_function("pull", "Throttles"), 0, _SUSTAINED),
            alarm("ConcurrencyUsed", _CONCURRENCY, _MOST_CONCURRENCY * settings.lambda_concurrency, _SUSTAINED),
        ]
        if self._functions.timers is not None:
            unread = self._functions.timers.queue.metric_approximate_number_of_messages_visible
            alarms.append(alarm("TimersUnread", unread(statistic="Maximum", period=_PERIOD), 0, _SUSTAINED))
        if self._counts_refusals:
            alarms.append(alarm("TooManyRequests", self._refused(), 0, _SUSTAINED))
        if settings.table_alarms:
            alarms += [*self._table_alarms(), *self._refusals_of(READ_BY_ALL, f"{settings.cell}-{READ_BY_ALL}")]
            alarms += [alarm for cell in settings.cells for alarm in self._table_alarms(cell)]
        if settings.push:
            behind = self._of_function("push", "IteratorAge", "Maximum")
            alarms.append(alarm("PushBehind", behind, 30_000, _SUSTAINED))
        return [*alarms, *self._pipeline_alarms()] if settings.pipeline else alarms

    def _table_alarms(self, cell: str | None = None) -> list[cloudwatch.Alarm]:
        """Adds alarms on the tables that each message passes, of the home cell or another one: on refused requests, and
        on the units served as a share of the account's quota."""
        alarms = []
        prefix, of_cell = table_prefix(self._settings, cell), f"{cell}-" if cell else ""
        for table in BUSY:
            # No caller waits for a read of these counters.
            kinds = ("Write",) if table == "counters" else ("Write", "Read")
            full_name = f"{prefix}-{table}"
            alarms += self._refusals_of(f"{of_cell}{table}", full_name, kinds)
            for kind in kinds:
                served = _of_table(full_name, f"Consumed{kind}CapacityUnits")
                most = _MOST_OF_TABLE * TABLE_UNITS * _PERIOD.to_seconds()
                alarms.append(self._alarm(f"{kind}Units-{of_cell}{table}", served, most, _SUSTAINED))
        return alarms

    def _refusals_of(
        self, name: str, full_name: str, kinds: Sequence[str] = ("Write", "Read")
    ) -> list[cloudwatch.Alarm]:
        """Adds alarms on the refused requests of one table."""
        return [
            self._alarm(f"{kind}sRefused-{name}", _of_table(full_name, f"{kind}ThrottleEvents"), 0, _SUSTAINED)
            for kind in kinds
        ]

    def _pipeline_alarms(self) -> list[cloudwatch.Alarm]:
        alarm, own = self._alarm, self._own
        behind_seconds = _INTERVALS_BEHIND * self._settings.archive_minutes * 60
        return [
            alarm("ArchiveBehind", own("ArchiveBehindSeconds", "Maximum"), behind_seconds),
            alarm("ArchiveUnreadableRows", own("ArchiveUnreadableRows"), 0),
            alarm("ArchiveMissingRows", own("ArchiveMissingRows"), 0),
            alarm("QuarantinedSegments", own("QuarantinedSegments", "Maximum"), 0),
            alarm("ArchiveLacksObjects", own("ArchiveLacksObjects", "Maximum"), 0),
            alarm("ReconcileFindings", own("ReconcileFindings", "Maximum"), 0),
            self._stopped("PipelineStopped", own("ReconcileFindings", "SampleCount", _DAY), periods=2),
        ]

    def _alarm(
        self, name: str, metric: cloudwatch.IMetric, above: float, periods: tuple[int, int] = (1, 1)
    ) -> cloudwatch.Alarm:
        alarm = cloudwatch.Alarm(
            self,
            name,
            alarm_name=f"{self._settings.cell}-{name}",
            alarm_description=f"See {name.partition('-')[0]} in docs/reference/alarms.md",
            metric=metric,
            threshold=above,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            datapoints_to_alarm=periods[0],
            evaluation_periods=periods[1],
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        return self._sent(alarm)

    def _stopped(self, name: str, metric: cloudwatch.IMetric, periods: int) -> cloudwatch.Alarm:
        """Adds an alarm on an event that should happen in each period, and has not happened in this many periods."""
        alarm = cloudwatch.Alarm(
            self,
            name,
            alarm_name=f"{self._settings.cell}-{name}",
            alarm_description=f"See {name} in docs/reference/alarms.md",
            metric=metric,
            threshold=1,
            comparison_operator=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            evaluation_periods=periods,
            # A function that is never started has no metrics.
            treat_missing_data=cloudwatch.TreatMissingData.BREACHING,
        )
        return self._sent(alarm)

    def _sent(self, alarm: cloudwatch.Alarm) -> cloudwatch.Alarm:
        if self._topic is not None:
            alarm.add_alarm_action(actions.SnsAction(self._topic))
            alarm.add_ok_action(actions.SnsAction(self._topic))
        return alarm

    def _make_dashboard(self) -> None:
        functions = list(self._names)
        own, of_function = self._own, self._of_function
        pushed = ["PushDelivered", "PushFailed", "PushPaused"] if self._settings.push else []
        age = [of_function("push", "IteratorAge", "Maximum")] if self._settings.push else []
        unusual = (
            "ClaimConflicts",
            "HolesFilled",
            "Throttles",
            "WakesMissed",
            "UnreadableMessages",
            "OrphanedMessages",
            "ExpiredUnread",
            "SweepLeft",
        )
        busy = own("WheelBusyPercent", "Maximum")
        refused = [self._refused()] if self._counts_refusals else []
        late = [own("DispatchLateness", statistic) for statistic in ("p50", "p99", "Maximum")]
        dashboard = cloudwatch.Dashboard(self, "Dashboard", dashboard_name=self._settings.cell)
        dashboard.add_widgets(
            cloudwatch.AlarmStatusWidget(title="Alarms", alarms=self._alarms, width=24, height=4),
        )
        dashboard.add_widgets(
            _graph("Messages", [own(name) for name in ("Accepted", "Delivered", "Settled", "Dispatched")]),
            _graph(
                "Waiting",
                [own("WaitingMessages", "Maximum"), own("HeldKeys", "Maximum")],
                right=[own("OldestMessageSeconds", "Maximum")],
            ),
            _graph("Lateness of delayed messages", late, right=[own("OverdueDelayedSeconds", "Maximum")]),
            _graph("Not settled", [own(name) for name in ("EndedLeases", "DeadLetters", *pushed[1:])]),
        )
        dashboard.add_widgets(
            cloudwatch.LogQueryWidget(
                title="Groups that have something waiting",
                log_group_names=[self._functions.log_groups["sweep"].log_group_name],
                query_lines=list(_LAG),
                width=12,
                height=6,
            ),
            _graph("Unusual", [own(name) for name in unusual]),
            _graph("Faults", [own("Faults")]),
        )
        dashboard.add_widgets(
            _graph("Requests", [*self._requests(), *refused]),
            _graph("Time to answer", self._times_to_answer()),
            _graph("Sweep", [own("SweepSeconds", "Maximum")], right=[busy]),
            *([_graph("Push", [own(name) for name in pushed[:1]], right=age)] if pushed else []),
        )
        dashboard.add_widgets(
            _graph("Invocations", [of_function(name, "Invocations") for name in functions]),
            _graph("Errors", [of_function(name, "Errors") for name in functions]),
            _graph("Time taken", [of_function(name, "Duration", "p99") for name in functions]),
            _graph("Running at once", [of_function(name, "ConcurrentExecutions", "Maximum") for name in functions]),
        )
        if self._settings.pipeline:
            dashboard.add_widgets(*self._pipeline_graphs())
        failures = self._functions.failures.metric_approximate_number_of_messages_visible
        dashboard.add_widgets(
            _graph("Read units", [_of_table(table, "ConsumedReadCapacityUnits") for table in self._tables]),
            _graph("Write units", [_of_table(table, "ConsumedWriteCapacityUnits") for table in self._tables]),
            _graph("Tables: refused, failed", [self._of_tables("ThrottledRequests"), self._of_tables("SystemErrors")]),
            _graph("Failed invocations", [failures(statistic="Maximum", period=_PERIOD)]),
        )

    def _pipeline_graphs(self) -> list[cloudwatch.GraphWidget]:
        own = self._own
        return [
            _graph("Archived", [own("ArchivedMessages")], right=[own("ArchiveBehindSeconds", "Maximum")]),
            _graph(
                "Damaged or removed before they were archived",
                [own("ArchiveUnreadableRows"), own("ArchiveMissingRows")],
            ),
            _graph(
                "Quarantined segments, and objects that the archive lacks",
                [own("QuarantinedSegments", "Maximum"), own("ArchiveLacksObjects", "Maximum")],
            ),
            _graph("Findings", [own("ReconcileFindings", "Maximum")]),
        ]

    def _own(self, name: str, statistic: str = "Sum", period: Duration = _PERIOD) -> cloudwatch.Metric:
        return _metric("Hourwheel", name, {"service": self._settings.cell}, statistic, period=period)

    def _refused(self) -> cloudwatch.Metric:
        """Returns a metric of the requests that a throttle of the API refused. The API's own metric 4xx also counts
        mistakes of clients."""
        if self._refusals is None:
            self._refusals = logs.MetricFilter(
                self,
                "Refused",
                log_group=self._api.log_group,
                filter_pattern=logs.FilterPattern.string_value("$.status", "=", "429"),
                metric_namespace=f"Hourwheel/{self._settings.cell}",
                metric_name="TooManyRequests",
                metric_value="1",
            )
        return self._refusals.metric(statistic="Sum", period=_PERIOD, label="TooManyRequests")

    def _of_function(self, key: str, name: str, statistic: str = "Sum") -> cloudwatch.Metric:
        return _metric("AWS/Lambda", name, {"FunctionName": self._names[key]}, statistic, label=key)

    def _of_tables(self, name: str) -> cloudwatch.MathExpression:
        """Returns a search expression, for the dashboard only: alarms do not accept one."""
        tables = " OR ".join(f'"{table}"' for table in self._tables)
        search = f"SEARCH('{{AWS/DynamoDB,TableName,Operation}} MetricName=\"{name}\" TableName=({tables})', 'Sum')"
        return cloudwatch.MathExpression(expression=f"SUM({search})", using_metrics={}, label=name, period=_PERIOD)

    def _server_errors(self) -> cloudwatch.IMetric:
        if self._api is not None:
            # The API answers 503 for a pull that Lambda throttles, which PullThrottled is about: its consumer waits.
            counts = {"errors": _of_api(self._api, "5xx"), "throttled": self._of_function("pull", "Throttles")}
            return cloudwatch.MathExpression(
                expression="errors - FILL(throttled, 0)", using_metrics=counts, label="5xx", period=_PERIOD
            )
        errors = {f"m{i}": self._of_function(name, "Url5xxCount") for i, name in enumerate(FRONTED)}
        return cloudwatch.MathExpression(
            expression=" + ".join(f"FILL({key}, 0)" for key in errors),
            using_metrics=errors,
            label="5xx",
            period=_PERIOD,
        )

    def _requests(self) -> list[cloudwatch.IMetric]:
        if self._api is not None:
            return [_of_api(self._api, name) for name in ("Count", "4xx", "5xx")]
        counts = ("UrlRequestCount", "Url4xxCount", "Url5xxCount")
        return [self._of_function(function, name) for name in counts for function in FRONTED]

    def _times_to_answer(self) -> list[cloudwatch.IMetric]:
        if self._api is not None:
            return [_of_api(self._api, "Latency", statistic) for statistic in ("p50", "p99")]
        return [self._of_function(function, "UrlRequestLatency", "p99") for function in FRONTED]


def _of_api(api: Api, name: str, statistic: str = "Sum") -> cloudwatch.Metric:
    return _metric("AWS/ApiGateway", name, {"ApiId": api.http.api_id}, statistic)


def _of_table(table: str, name: str) -> cloudwatch.Metric:
    return _metric("AWS/DynamoDB", name, {"TableName": table}, "Sum", label=table)


def _metric(
    namespace: str,
    name: str,
    dimensions: dict[str, str],
    statistic: str,
    *,
    label: str | None = None,
    period: Duration = _PERIOD,
) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=namespace,
        metric_name=name,
        dimensions_map=dimensions,
        statistic=statistic,
        period=period,
        label=label or (name if statistic in {"Sum", "Maximum"} else f"{name} {statistic}"),
    )


def _graph(
    title: str, left: Sequence[cloudwatch.IMetric], *, right: Sequence[cloudwatch.IMetric] = ()
) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=list(left), right=list(right), width=6, height=6)
