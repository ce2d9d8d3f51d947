"""Implements the rules of docs/api/ in memory, as briefly as they still hold: the state behind the fake server."""

import itertools
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.unit.client.broker_records import (
    LONGEST,
    MESSAGE_FIELDS,
    NOW,
    PUSH,
    WAITS,
    FakeGroup,
    FakeScheduled,
    FakeSubject,
    Json,
    Lease,
    Refusal,
    delayed_page,
    due_of,
    limit_of,
    page_of,
    text_of,
)


class Broker:
    """A broker in memory. Every method runs under ``changed``, and wakes the pulls that wait on it."""

    max_batch_bytes = 4 << 20

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.subjects: dict[str, FakeSubject] = {}
        self.scheduled: dict[str, FakeScheduled] = {}
        self.orphans: dict[str, list[Json]] = {}
        self.waiting_pulls = 0
        self.empty_pulls = 0
        self._numbers = itertools.count(1)

    def subject(self, name: str) -> FakeSubject:
        return self.subjects.setdefault(name, FakeSubject())

    def group(self, subject: str, name: str) -> FakeGroup:
        owner = self.subject(subject)
        return owner.groups.setdefault(name, FakeGroup("earliest", 16, [0] * len(owner.queues)))

    def known_subject(self, name: str) -> FakeSubject:
        if name not in self.subjects:
            raise Refusal(404, "subject-unknown", f"there is no subject {name!r}")
        return self.subjects[name]

    def known_group(self, subject: str, name: str) -> FakeGroup:
        groups = self.known_subject(subject).groups
        if name not in groups:
            raise Refusal(404, "group-unknown", f"there is no group {name!r}")
        return groups[name]

    # Produce

    def produce(self, subject: str, request: Json) -> Json:
        messages, key = request["messages"], request.get("idempotency_key")
        self._check(messages)
        owner = self.subject(subject)
        if key in owner.keys:
            before, answer = owner.keys[key]
            if before != messages:
                raise Refusal(409, "idempotency-key-reused")
            return answer
        if owner.read_only:
            raise Refusal(409, "subject-read-only", f"subject {subject!r} is read-only", where="subject")
        answer = {"results": self._store_all(subject, owner, messages)}
        if key is not None:
            owner.keys[key] = (messages, answer)
        self.changed.notify_all()
        return answer

    def produce_many(self, request: Json) -> Json:
        results: list[Json] = []
        for message in request["messages"]:
            results += self.produce(message.pop("subject"), {"messages": [message]})["results"]
        return {"results": results}

    def _check(self, messages: list[Json]) -> None:
        for index, message in enumerate(messages):
            if message.get("key") == "bad":
                raise Refusal(400, "field-invalid", "the key is bad", where=f"messages[{index}].key")
            if message.get("body") == "unplaced":
                raise Refusal(400, "field-invalid", "some message is bad")
            if ("body" in message) == ("body_base64" in message):
                raise Refusal(400, "field-invalid", "exactly one of body and body_base64", where=f"messages[{index}]")
            if set(message) - MESSAGE_FIELDS:
                raise Refusal(400, "field-invalid", "unknown field", where=f"messages[{index}]")
        if sum(len(message.get("body", "")) for message in messages) > self.max_batch_bytes:
            raise Refusal(413, "batch-too-large")

    def _store_all(self, subject: str, owner: FakeSubject, messages: list[Json]) -> list[Json]:
        latest = datetime.fromisoformat(NOW) + LONGEST
        dues = [due_of(message) for message in messages]
        for index, due in enumerate(dues):
            if due is not None and due > latest and not owner.clamp_delays:
                raise Refusal(400, "delay-too-long", "that is too far ahead", where=f"messages[{index}]")
        plain = [{name: message[name] for name in message if name not in WAITS} for message in messages]
        return [
            self._store(owner, message) if due is None else self._schedule(subject, owner, message, min(due, latest))
            for message, due in zip(plain, dues, strict=True)
        ]

    def _schedule(self, subject: str, owner: FakeSubject, message: Json, due: datetime) -> Json:
        scheduled_id, message_id = f"s-{next(self._numbers)}", message.get("id", f"m-{next(self._numbers)}")
        known = {"state": "waiting", "id": message_id, "subject": subject, "deliver_at": text_of(due)}
        known["scheduled_id"] = scheduled_id
        self.scheduled[scheduled_id] = FakeScheduled(known, {**message, "id": message_id}, owner)
        return {"id": message_id, "scheduled": text_of(due), "scheduled_id": scheduled_id}

    def _store(self, owner: FakeSubject, message: Json) -> Json:
        number = sum(map(ord, message.get("key", ""))) % len(owner.queues)
        queue = owner.queues[number]
        stored = {"id": f"m-{next(self._numbers)}", **message, "queue": number, "offset": len(queue)}
        queue.append({**stored, "produced_at": NOW, "attempt": 1})
        return {name: stored[name] for name in ("id", "queue", "offset")}

    # Delayed messages

    def _known_scheduled(self, scheduled_id: str) -> FakeScheduled:
        if not scheduled_id.startswith("s-"):
            raise Refusal(400, "scheduled-id-invalid", "this is not the id of a delayed message", where="id")
        if scheduled_id not in self.scheduled:
            raise Refusal(404, "scheduled-unknown", f"there is no delayed message {scheduled_id!r}")
        return self.scheduled[scheduled_id]

    def show_scheduled(self, scheduled_id: str) -> Json:
        return self._known_scheduled(scheduled_id).known

    def cancel(self, scheduled_id: str) -> Json:
        answer = self._known_scheduled(scheduled_id)
        if answer.known["state"] == "waiting":
            answer.known["state"] = "cancelled"
        return answer.known

    def reschedule(self, scheduled_id: str, request: Json) -> Json:
        answer = self._known_scheduled(scheduled_id)
        due = due_of(request)
        assert due is not None
        if answer.known["state"] == "waiting" and answer.known["deliver_at"] != text_of(due):
            answer.known |= {"deliver_at": text_of(due), "scheduled_id": f"s-{next(self._numbers)}"}
            self.scheduled[answer.known["scheduled_id"]] = answer
        moved = answer.known["state"] == "waiting"
        return answer.known | {"state": "moved"} if moved else answer.known

    def pending(self, subject: str, hours: int | None) -> Json:
        self.known_subject(subject)
        before = text_of(datetime.fromisoformat(NOW) + timedelta(hours=hours or 72))
        waiting = {each.known["scheduled_id"]: each.known for each in self.scheduled.values()}.values()
        dues = [known["deliver_at"] for known in waiting if known["subject"] == subject and known["state"] == "waiting"]
        each = Counter(due[:14] + "00:00.000Z" for due in dues if due < before)
        counts = [{"hour": hour, "messages": count} for hour, count in sorted(each.items())]
        total = {"total": len(dues), "complete": True} | ({"next_at": min(dues)} if dues else {})
        return {"subject": subject, "messages": sum(each.values()), "hours": counts} | ({} if hours else total)

    def list_delayed(self, query: Json) -> Json:
        return delayed_page(self.scheduled.values(), query)

    def list_subject_delayed(self, subject: str, query: Json) -> Json:
        self.known_subject(subject)
        return delayed_page((each for each in self.scheduled.values() if each.known["subject"] == subject), query)

    def fall_due(self, scheduled_id: str) -> None:
        """Moves the delayed message to its queue: its time has come."""
        with self.changed:
            answer = self._known_scheduled(scheduled_id)
            known, message = answer.known, {**answer.message, "due_at": answer.known["deliver_at"]}
            if self.subjects.get(known["subject"]) is answer.owner:
                known |= {"state": "dispatched", "dispatched_at": NOW, **self._store(answer.owner, message)}
            else:
                orphans = self.orphans.setdefault(known["subject"], [])
                of_death = {"dead_id": f"0-{len(orphans)}-0", "died_at": NOW, "reason": "subject-deleted"}
                orphans.append({**message, "produced_at": NOW, **of_death})
            self.changed.notify_all()

    def list_orphans(self, subject: str, limit: int, after: str) -> Json:
        return page_of(self.orphans.get(subject, []), limit, after)

    # Pull and settle

    def pull(self, subject: str, name: str, request: Json) -> Json:
        group = self.group(subject, name)
        settled = [self._settle(group, entry) for entry in self._known(group, request.get("settle", []))]
        until = time.monotonic() + request.get("wait_seconds", 0)
        self.waiting_pulls += 1
        self.changed.notify_all()
        pulls = self._lease(subject, group, request)
        while not (pulls or self._suspects_wait(group, request)) and (left := until - time.monotonic()) > 0:
            self.changed.wait(left)
            pulls = self._lease(subject, group, request)
        self.waiting_pulls -= 1
        self.empty_pulls += not pulls
        self.changed.notify_all()
        limit = limit_of(self.subject(subject), group)
        return {
            "pulls": pulls,
            **({"settled": settled} if "settle" in request else {}),
            **({} if limit is None else {"limited_by": limit}),
            **({"suspects_wait": True} if self._suspects_wait(group, request) else {}),
        }

    def _suspects_wait(self, group: FakeGroup, request: Json) -> bool:
        return bool(group.suspects) and not request.get("suspects", True)

    def _lease(self, subject: str, group: FakeGroup, request: Json) -> list[Json]:
        self._take_over_ended(group)
        if limit_of(self.subject(subject), group) is not None:
            return []
        if group.suspects and request.get("suspects", True):
            return [{**self._leased(group, "retry", [group.suspects.pop(0)], request, suspect=True), "suspect": True}]
        most, pulls = request.get("max_messages", 100), []
        retries, group.retries = group.retries[:most], group.retries[most:]
        batches: list[tuple[Any, list[Json]]] = [("retry", retries)]
        for number, queue in enumerate(self.subject(subject).queues):
            start = group.positions[number]
            batch = queue[start : start + most - sum(len(taken) for _, taken in batches)]
            group.positions[number] += len(batch)
            batches.append((number, batch))
        for number, batch in batches:
            if batch:
                pull = self._leased(group, number, batch, request)
                pulls.append({**pull, "ordered": True} if group.ordered else pull)
        return pulls

    def _leased(
        self, group: FakeGroup, queue: Any, messages: list[Json], request: Json, *, suspect: bool = False
    ) -> Json:
        receipt = f"r-{next(self._numbers)}"
        group.leases[receipt] = Lease(messages, time.monotonic() + request.get("lease_seconds", 30), suspect)
        return {"receipt": receipt, "queue": queue, "lease_until": NOW, "messages": messages}

    def _take_over_ended(self, group: FakeGroup) -> None:
        for lease in group.leases.values():
            if lease.left and not lease.taken_over and lease.until <= time.monotonic():
                lease.taken_over = True
                for index in sorted(lease.left):
                    message = lease.messages[index]
                    if not lease.suspect:
                        group.suspects.append(message)  # with the same attempt: others were in hand beside it
                    elif message["attempt"] >= group.max_attempts:
                        self._bury(group, message, "attempts")
                    else:
                        group.suspects.append({**message, "attempt": message["attempt"] + 1})

    def end_leases(self, subject: str, name: str) -> None:
        """Ends the leases as if they had run out."""
        with self.changed:
            group = self.group(subject, name)
            for lease in group.leases.values():
                lease.until = 0.0
            self._take_over_ended(group)
            self.changed.notify_all()

    def _retry(self, group: FakeGroup, message: Json) -> None:
        if message["attempt"] >= group.max_attempts:
            self._bury(group, message, "attempts")
        else:
            group.retries.append({**message, "attempt": message["attempt"] + 1})

    def _bury(self, group: FakeGroup, message: Json, reason: str) -> None:
        group.dead.append({**message, "dead_id": f"{next(self._numbers)}-0", "died_at": NOW, "reason": reason})

    def settle(self, subject: str, name: str, request: Json) -> Json:
        group = self.known_group(subject, name)
        results = [self._settle(group, entry) for entry in self._known(group, request["settle"])]
        if all(result["status"] == "stale" for result in results):
            raise Refusal(409, "receipt-stale")
        self.changed.notify_all()
        return {"results": results}

    def _known(self, group: FakeGroup, entries: list[Json]) -> list[Json]:
        for entry in entries:
            if entry["receipt"] not in group.leases:
                raise Refusal(400, "receipt-invalid", where="settle")
        return entries

    def _settle(self, group: FakeGroup, entry: Json) -> Json:
        lease = group.leases[entry["receipt"]]
        if entry == lease.last and not lease.taken_over:
            return {"status": "open" if lease.left else "settled"}
        if lease.taken_over or not lease.left:
            return {"status": "stale"}
        if "extend_seconds" in entry:
            lease.until = time.monotonic() + entry["extend_seconds"]
            return {"status": "extended", "lease_until": NOW}
        release = set(entry.get("release", ()))
        details = {each["index"]: each["detail"] for each in entry.get("dead", ()) if not isinstance(each, int)}
        dead = {each if isinstance(each, int) else each["index"] for each in entry.get("dead", ())}
        retry = {each if isinstance(each, int) else each["index"]: each for each in entry.get("retry", ())}
        moved = set(retry) | release | dead
        acked = set(entry["ack"]) if "ack" in entry else lease.left - moved
        if not acked | moved <= lease.left:
            return {"status": "stale"}
        released = group.suspects if lease.suspect else group.retries
        released += [lease.messages[index] for index in sorted(release)]
        for index in sorted(retry):
            later = {} if isinstance(retry[index], int) else retry[index]
            message = lease.messages[index] | ({"detail": later["detail"]} if "detail" in later else {})
            if "delay" in later:
                group.backing_off.append((later["delay"], message))
            else:
                self._retry(group, message)
        for index in sorted(dead):
            self._bury(group, {**lease.messages[index], "detail": details.get(index)}, "rejected")
        group.acked += [lease.messages[index].get("body", "") for index in sorted(acked)]
        lease.left -= acked | moved
        lease.last = entry
        return {"status": "open" if lease.left else "settled"}

    # Subjects and groups

    def put_subject(self, name: str, request: Json) -> Json:
        owner = self.subject(name)
        wanted = request.get("queues", len(owner.queues))
        if wanted < len(owner.queues):
            raise Refusal(409, "setting-fixed", "queues can only grow", where="queues")
        owner.queues += [[] for _ in range(wanted - len(owner.queues))]
        owner.retention_seconds = request.get("retention_seconds", owner.retention_seconds)
        owner.clamp_delays = request.get("clamp_delays", owner.clamp_delays)
        owner.read_only = request.get("read_only", owner.read_only)
        for group in owner.groups.values():
            group.positions += [0] * (len(owner.queues) - len(group.positions))
        return self.show_subject(name)

    def show_subject(self, name: str) -> Json:
        owner = self.known_subject(name)
        return {
            "subject": name,
            "queues": len(owner.queues),
            "retention_seconds": owner.retention_seconds,
            "created_at": NOW,
            "clamp_delays": owner.clamp_delays,
            "paused": owner.paused,
            "read_only": owner.read_only,
            "groups": sorted(owner.groups)[:100],
            "more_groups": len(owner.groups) > 100,
        }

    def list_subjects(self, limit: int, after: str) -> Json:
        if limit > 100:
            raise Refusal(400, "field-invalid", "limit is at most 100", where="limit")
        names = [name for name in sorted(self.subjects) if name > after]
        page = [self.show_subject(name) for name in names[:limit]]
        return {"subjects": page, "next": names[limit - 1] if len(names) > limit else None}

    def pause_subject(self, name: str, *, paused: bool = True) -> Json:
        self.known_subject(name).paused = paused
        self.changed.notify_all()
        return self.show_subject(name)

    def resume_subject(self, name: str) -> Json:
        return self.pause_subject(name, paused=False)

    def pause_group(self, subject: str, name: str, *, paused: bool = True) -> Json:
        self.known_group(subject, name).paused = paused
        self.changed.notify_all()
        return self.show_group(subject, name)

    def resume_group(self, subject: str, name: str) -> Json:
        return self.pause_group(subject, name, paused=False)

    def trace(self, name: str, text: str, query: dict[str, str]) -> Json:
        """Traces of messages that nobody has pulled."""
        every = [message for queue in self.known_subject(name).queues for message in queue]
        found = [each for each in every if text in (each["id"], f"{each['queue']}:{each['offset']}")]
        if not found:
            raise Refusal(404, "message-unknown", f"there is no message {text!r}")
        names = [query["group"]] if "group" in query else sorted(self.known_subject(name).groups)
        groups = [{"group": group, "state": "waiting", "events": [], "complete": True} for group in names]
        places = [{key: each[key] for key in ("id", "queue", "offset")} for each in found]
        return {
            "messages": [
                {"subject": name, "state": "accepted", "accepted_at": NOW, "groups": groups, **place}
                for place in places
            ],
            "next": None,
        }

    def peek(self, name: str, number: str, query: dict[str, str]) -> Json:
        queue = self.known_subject(name).queues[int(number)]
        newest, limit = query.get("newest") == "true", int(query["limit"])
        start = int(query.get("offset", len(queue) if newest else 0))
        chosen = queue[start::-1] if newest else queue[start:]
        page = [{key: message[key] for key in message if key != "attempt"} for message in chosen[:limit]]
        following = chosen[limit]["offset"] if len(chosen) > limit else None
        return {"messages": page, "damaged": [], "next": following, "end": len(queue)}

    def delete_subject(self, name: str) -> None:
        self.known_subject(name)
        del self.subjects[name]

    def list_groups(self, subject: str, limit: int, after: str) -> Json:
        names = [name for name in sorted(self.known_subject(subject).groups) if name > after]
        page = [self.show_group(subject, name) for name in names[:limit]]
        return {"groups": page, "next": names[limit - 1] if len(names) > limit else None}

    def delete_group(self, subject: str, name: str) -> None:
        self.known_group(subject, name)
        del self.subjects[subject].groups[name]

    def put_group(self, subject: str, name: str, request: Json) -> Json:
        group = self.group(subject, name)
        group.start = request.get("start", group.start)
        group.max_attempts = request.get("max_attempts", group.max_attempts)
        group.retry = request.get("retry", group.retry)
        group.max_in_flight = request.get("max_in_flight", group.max_in_flight)
        group.messages_per_second = request.get("messages_per_second", group.messages_per_second)
        if "push" in request:
            group.push = request["push"] and {**PUSH, **request["push"]}
        return self.show_group(subject, name)

    def show_group(self, subject: str, name: str) -> Json:
        group = self.known_group(subject, name)
        known: Json = {"start": group.start, "max_attempts": group.max_attempts, "created_at": NOW}
        known |= {"paused": group.paused, "max_in_flight": group.max_in_flight}
        known["messages_per_second"] = group.messages_per_second
        if group.push is not None:
            known["push"] = group.push
        return {"subject": subject, "group": name, "retry": group.retry, **known}

    def show_push(self, subject: str, name: str) -> Json:
        push = self.known_group(subject, name).push
        if push is None:
            raise Refusal(404, "push-unknown", f"the group {name!r} has no target")
        secret = "whsec_c2VjcmV0" if push["kind"] == "https" else None
        until = {"state": "paused", "paused_until": NOW, "failures": 5, "last_error": "answered 500"}
        return {**until, "signing_secret": secret}

    def seek(self, subject: str, name: str, request: Json) -> Json:
        group, owner = self.known_group(subject, name), self.known_subject(subject)
        for number, queue in enumerate(owner.queues):
            if "offset" in request:
                if number == request["queue"]:
                    group.positions[number] = request["offset"]
            elif request.get("to") == "end":
                group.positions[number] = len(queue)
            else:
                if "time" in request:
                    datetime.fromisoformat(request["time"]).astimezone(UTC)
                group.positions[number] = 0
        return {"positions": [{"queue": number, "offset": offset} for number, offset in enumerate(group.positions)]}

    def lag(self, subject: str, name: str) -> Json:
        group, owner = self.known_group(subject, name), self.known_subject(subject)
        queues = [
            {"queue": number, "waiting": len(queue) - at, "in_flight": 0, "offset": at, "end": len(queue)}
            for number, (queue, at) in enumerate(zip(owner.queues, group.positions, strict=True))
        ]
        return {
            "waiting": sum(queue["waiting"] for queue in queues),
            "in_flight": sum(len(lease.left) for lease in group.leases.values() if not lease.taken_over),
            "retrying": len(group.retries) + len(group.suspects),
            "backing_off": len(group.backing_off),
            "dead": len(group.dead),
            "expired_unread": group.expired_unread,
            "oldest_at": None,
            "queues": queues,
            "limited_by": limit_of(owner, group),
        }

    # Dead letters

    def list_dead(self, subject: str, name: str, limit: int, after: str) -> Json:
        return page_of(self.known_group(subject, name).dead, limit, after)

    def show_dead(self, subject: str, name: str, dead_id: str) -> Json:
        for letter in self.known_group(subject, name).dead:
            if letter["dead_id"] == dead_id:
                return letter
        raise Refusal(404, "dead-letter-unknown")

    def exhume(self, subject: str, name: str, request: Json) -> list[Json]:
        group = self.known_group(subject, name)
        every = "all" in request or "from" in request or "to" in request
        chosen = [letter for letter in group.dead if every or letter["dead_id"] in request["ids"]]
        group.dead = [letter for letter in group.dead if letter not in chosen]
        return chosen

    def drop(self, subject: str, name: str, request: Json) -> Json:
        return {"dropped": len(self.exhume(subject, name, request))}

    def redrive(self, subject: str, name: str, request: Json) -> Json:
        chosen = self.exhume(subject, name, request)
        of_death = {"dead_id", "died_at", "reason"}
        again = [{key: letter[key] for key in letter if key not in of_death} for letter in chosen]
        self.group(subject, name).retries += [{**message, "attempt": 1} for message in again]
        self.changed.notify_all()
        return {"redriven": len(chosen)}

    def health(self) -> Json:
        return {"status": "ok", "version": "0.0.0"}
