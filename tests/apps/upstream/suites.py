"""Lists the cases of the frameworks that run on Hourwheel, and those that do not pass, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Cases that run in one process, on a server of their own.

    ``chosen``: files, classes or cases for pytest, ``in_package`` or beside this file. ``left_out``: cases that do not
    run, ``not_passing``: cases that fail, ``skipped``: cases that skip themselves; each with the reason. The cases of a
    parametrized function may be named together.
    """

    name: str
    package: str
    chosen: tuple[str, ...]
    in_package: bool = False
    plugins: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    not_passing: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)

    def listed(self) -> list[str]:
        return [*self.left_out, *self.not_passing, *self.skipped]

    def leaves_out(self, case: str) -> bool:
        return _names(self.left_out, case)

    def expected(self, case: str) -> str:
        """Returns how the case should end: passed, failed or skipped."""
        if _names(self.not_passing, case):
            return "failed"
        return "skipped" if _names(self.skipped, case) else "passed"


def _names(listed: Mapping[str, str], case: str) -> bool:
    return case in listed or case.partition("[")[0] in listed


KOMBU = Suite(
    name="kombu",
    package="kombu",
    chosen=("kombu_transport.py",),
    not_passing={
        f"kombu_transport.py::TestPriority::{case}": reason
        for case, reason in {
            "test_publish_consume": "takes three messages from one drain_events: virtual transports hand out one",
            "test_publish_requeue_consume": "the same; Kombu's suites for Redis and MongoDB replace both cases",
            "test_simple_buffer_publish_consume": "a queue that is not durable has no levels of priority",
        }.items()
    },
)
_REDIS = "reads the keys of Redis"
_STUB = "reads the queues of the broker in memory, or expects its join to raise what an actor raised"
DRAMATIQ = Suite(
    name="dramatiq",
    package="dramatiq",
    chosen=("dramatiq_broker.py",),
    left_out={
        f"dramatiq_broker.py::{case}": reason
        for reason, cases in {
            _STUB: (
                "test_actors_can_be_sent_messages",
                "test_actors_can_be_assigned_time_limits",
                "test_actor_messages_can_be_assigned_time_limits",
                "test_actors_can_be_assigned_message_age_limits",
                "test_actor_messages_can_be_assigned_message_age_limits",
                "test_messages_belonging_to_missing_actors_are_rejected",
                "test_workers_log_rate_limit_exceeded_errors_differently",
                "test_worker_handles_non_numeric_eta_and_logs_warning",
                "test_worker_handles_none_eta",
            ),
            "counts the messages in a worker a millisecond after they were sent": (
                "test_workers_process_messages_in_order",
            ),
            _REDIS: (
                "test_redis_unacked_messages_can_be_requeued",
                "test_redis_messages_can_be_dead_lettered",
                "test_redis_dead_lettered_messages_are_cleaned_up",
                "test_redis_messages_belonging_to_missing_actors_are_rejected",
                "test_redis_requeues_unhandled_messages_on_shutdown",
                "test_redis_requeues_unhandled_delay_messages_on_shutdown",
                "test_redis_broker_can_connect_via_url",
                "test_redis_broker_can_connect_via_client",
                "test_redis_consumer_ack_can_retry_on_connection_error",
                "test_redis_consumer_nack_can_retry_on_connection_error",
                "test_redis_join_race_condition",
            ),
        }.items()
        for case in cases
    },
)
_TASKS = "t/integration/test_tasks.py"
_INSPECT = "t/integration/test_inspect.py::test_Inspect"
_WORKER = "t/integration/test_worker.py"
_CANVAS = "t/integration/test_canvas.py"


def _celery(name: str, *chosen: str, **reasons: Mapping[str, str]) -> Suite:
    plugin = "celery.contrib.pytest"
    return Suite(name=name, package="celery", in_package=True, plugins=(plugin,), chosen=chosen, **reasons)


# Of test_tasks.py, these classes do not run: test_apply_tasks calls tasks without a broker, and
# test_task_redis_result_backend is about results; test_trace_log_arguments waits for a line of the log for 10 ms.
TASKS = _celery(
    "celery-tasks",
    f"{_TASKS}::test_class_based_tasks",
    f"{_TASKS}::test_tasks",
    left_out={
        f"{_TASKS}::test_tasks::test_timeout": "waits for 15 s, for a result",
        f"{_TASKS}::test_tasks::test_expired": "takes 20 s",
        f"{_TASKS}::test_tasks::test_retry": "takes 30 s",
        f"{_TASKS}::test_tasks::test_revoke_keeps_state_of_task_started_elsewhere": "takes 20 s, about results",
        f"{_TASKS}::test_tasks::test_revoked_by_headers_complex_canvas": "takes minutes",
        f"{_TASKS}::test_tasks::test_retry_with_unpickleable_exception": "leaves a task for the cases after it",
    },
    skipped={  # by Celery itself
        f"{_TASKS}::test_tasks::test_multiprocess_producer": "broken, as Celery says",
        f"{_TASKS}::test_tasks::test_multithread_producer": "broken, as Celery says",
        f"{_TASKS}::test_tasks::test_task_accepted": "fails at random, as Celery says",
    },
)
# The other cases of test_worker.py are about Django, which changes this process for the cases after it, and about the
# URL of an AMQP server.
INSPECT = _celery(
    "celery-inspect",
    "t/integration/test_inspect.py",
    f"{_WORKER}::test_concurrency_auto_sizes_prefork_pool",
    f"{_WORKER}::test_pidbox_reset_after_repeated_control_errors",
    not_passing={f"{_INSPECT}::test_scheduled": "a task with an eta waits in the queue, unknown to every worker"},
)
# A part of test_canvas.py: its other cases are mostly about results, and each takes a second or more.
CANVAS = _celery(
    "celery-canvas",
    *(
        f"{_TASKS}::{group}"
        for group in (
            "test_task_replacement",
            "test_signal_bound_method_receivers",
            "test_pool_acquire_timeout",
        )
    ),
    *(
        f"{_CANVAS}::{case}"
        for case in (
            "test_chain::test_simple_chain",
            "test_chain::test_complex_chain",
            "test_chain::test_group_results_in_chain",
            "test_chain::test_chain_on_error",
            "test_chain::test_parent_ids",
            "test_group::test_nested_group",
            "test_chord::test_group_or_task_countdown_delays_header",
            "test_chord::test_group_chain",
            "test_chord::test_parallel_chords",
            "test_chord::test_chord_on_error",
            "test_chord::test_large_header",
            "test_chord::test_priority",
            "test_chord::test_priority_chain",
        )
    ),
)
SUITES = (KOMBU, DRAMATIQ, TASKS, INSPECT, CANVAS)
