"""Each accepted message is delivered to each group as expected: none is lost, and none is delivered more times than
expected."""

import json

from hourwheel.api.routes import ROUTES
from hourwheel.buckets.starts import RELAY_MS, SOON_MS
from hourwheel.times import rfc3339

from . import job, rare
from .system import System
from .template import CELL


def test_three_groups_get_every_flight_once(system: System) -> None:
    done = system.once(job.share)
    sent = done["sent"]
    assert len(sent) == len(job.flights())
    dropped = done["died"][1::2]
    for messages in (done["boards"], done["billed"], done["audited"] + dropped, done["again"]):
        assert {message["id"]: message["body"] for message in messages} == sent
        assert len(messages) == len(sent)


def test_a_batch_for_two_subjects_is_stored_once(system: System) -> None:
    assert job.bodies(system.once(job.across)) == sorted(map(str, range(10)))


def test_a_group_dozes_and_wakes_for_every_message(system: System) -> None:
    bodies = ["produced", "released", "first", "passed on", "due", "left behind"]
    assert system.once(job.doze) == [*bodies, "queues: 0"]


def test_an_hour_ends_and_what_was_due_has_arrived(system: System) -> None:
    done = system.once(job.delay)
    assert job.bodies(done["early"]) == ["moved here", "soon"]
    wanted = ["in the next hour", job.large("in the next hour"), job.large("moved there")]
    assert job.bodies(done["late"]) == sorted(wanted)
    states = {body: "cancelled" if body == "cancelled" else "dispatched" for body in done["told"]}
    assert done["told"] == states


def test_scheduler_starts_what_orders_the_precise_start_of_a_wheel(system: System) -> None:
    """The wheel accepts the events that functions order, under the role that may start the wheel and do nothing
    else."""
    done = system.once(job.delay)
    bucket = f"{round(done['following']) * 1_000}-60/000"
    ordered = {"bucket": bucket, "wakes_ms": round(done["wakes"] * 1_000)}
    schedule = next(one for one in done["waking"].values() if bucket in one["Target"].get("Input", ""))
    at = rfc3339(round(done["wakes"] * 1_000) - RELAY_MS).removesuffix("Z")[:19]
    assert schedule["ScheduleExpression"] == f"at({at})"
    assert schedule["ActionAfterCompletion"] == "DELETE"
    assert json.loads(schedule["Target"]["Input"]) == ordered == done["started"][0]["event"]
    wheel = next(
        found for _, found in system.template.of_type("Lambda::Function") if found["FunctionName"].endswith("wheel")
    )
    assert schedule["Target"]["RoleArn"] == wheel["Environment"]["Variables"]["HOURWHEEL_TIMER_ROLE"]


def test_the_queue_of_timers_starts_the_wheel_at_its_time(system: System) -> None:
    done = system.once(job.delay)
    for seen, body in done["timed"]:
        assert body["wakes_ms"] == round(done["wakes"] * 1_000)
        assert seen >= done["wakes"] - SOON_MS / 1_000, "a start that is further ahead waits in the queue"


def test_the_queue_of_timers_is_read_only_while_a_start_is_near(system: System) -> None:
    assert system.once(job.delay)["read"] == [True, False]


def test_a_day_after_their_hour_delayed_messages_leave_nothing(system: System) -> None:
    assert system.once(rare.close) == {"schedule": [], "dispatch": [], "objects": []}


def test_large_messages_go_where_others_go(system: System) -> None:
    system.once(rare.carry)


def test_the_sweeper_ends_leases(system: System) -> None:
    found = system.once(rare.lease)
    assert job.bodies(found) == sorted(row.body for row in job.flights()[:20])
    assert len(job.counted(found)) == 20


def test_a_subject_is_deleted_and_made_anew(system: System) -> None:
    system.once(rare.renew)


def test_what_outlives_its_subject_is_kept(system: System) -> None:
    assert job.bodies(system.once(rare.orphan)) == ["nobody waits"]


def test_targets_get_every_message_once(system: System) -> None:
    done = system.once(job.push)
    for name in ("ship", "queue", "bus", "web"):
        assert job.bodies(done[name]) == done["wanted"], name
    assert {"subject": "departures", "group": "notice"} in done["notice"]


def test_the_stream_is_read_while_some_group_has_a_target(system: System) -> None:
    assert system.once(job.hear) == [False, True, True, False]


def test_the_stream_is_not_held_up_by_what_is_strange(system: System) -> None:
    assert system.once(rare.poison) == ["before the target", "after the poison"]


def test_the_archive_has_once_what_the_tables_have(system: System) -> None:
    done = system.once(rare.archive)
    told, kept, stored = done["told"], done["kept"], done["stored"]
    assert told["complete"]
    assert told["unreadable_rows"] == told["missing_rows"] == 0
    assert set(kept.rows.values()) == {1}
    assert len(stored) > len(job.flights())
    assert {position: kept.messages.get(position) for position in stored} == stored


def test_failed_invocations_end_in_the_queue(system: System) -> None:
    found = system.once(rare.fail)
    # Names that begin with an underscore are ministack's own.
    events = [{key: part for key, part in one["requestPayload"].items() if key[0] != "_"} for one in found]
    assert sorted(map(json.dumps, events)) == ['{"bucket": "noon"}', '{"push": {}}']


def test_the_next_consumer_ends_leases(system: System) -> None:
    assert system.once(rare.expire_twice) == ["first", "second"]


def test_who_stores_for_later_sees_to_a_wheel(system: System) -> None:
    system.once(rare.order)


def test_a_wheel_calls_its_successor(system: System) -> None:
    system.once(rare.relay)


def test_what_others_left_half_done_is_finished(system: System) -> None:
    system.once(rare.mend)


def test_a_batch_that_is_over_is_not_stored_again(system: System) -> None:
    system.once(rare.repeat)


def test_what_is_lost_keeps_nobody_from_the_rest(system: System) -> None:
    system.once(rare.lose)


def test_every_route_was_used_by_its_function(system: System) -> None:
    for step in rare.STEPS:
        system.once(step)
    events = [(entry["started"], entry["event"]) for entry in system.entries() if "started" in entry]
    used = {(function, event["routeKey"]) for function, event in events if "routeKey" in event}
    assert used == {(f"{CELL}-{route.function}", route.key) for route in ROUTES}
