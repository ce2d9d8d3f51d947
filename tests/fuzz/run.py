"""Fuzzes a server: ``python -m tests.fuzz.run --requests 100000 [--seed 7] [--only 12]``.

Each conversation has a seed of its own; ``--only`` repeats one of them. The exit status is 1 if a rule was broken.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.fuzz.conversation import Account, Conversation
from tests.fuzz.grammar import KEPT
from tests.fuzz.oracle import Violation
from tests.fuzz.stuck import SHAPES, stay
from tests.integration.process import Server, bodies

AT_ONCE = 8
BODY_SECONDS = 6
MEMORY_MB = 400
_EXPECTED = ("deleted meanwhile, went to", ": send the request again", ": send the batch again")
"""Lines of the log that are right: the server reports delayed messages whose subject was deleted, and requests that met
a change of their subject, which it asks to be sent again."""


class Report(NamedTuple):
    conversations: int
    account: Account
    stored: int
    memory_mb: int
    seconds: float

    def __str__(self) -> str:
        statuses = ", ".join(f"{name}: {count}" for name, count in sorted(self.account.answers.items()))
        return (
            f"{self.account.requests} requests in {self.conversations} conversations, {self.seconds:.0f} s; "
            f"{statuses}; "
            f"{len(self.account.accepted)} messages accepted for the audit, {self.stored} found; "
            f"{len(SHAPES)} stuck clients ended; {self.memory_mb} MB at most"
        )


def fuzz(requests: int, seed: int, only: int | None = None) -> Report:
    """Raises ``Violation``."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hourwheel-fuzz-") as folder:
        server = Server(Path(folder) / "data", body_seconds=BODY_SECONDS)
        try:
            account = Account()
            count = asyncio.run(_converse(server.port, account, requests, seed, only))
            stored = audit(server, account)
            memory_mb = peak_mb(server.process.pid)
            status, errors = server.stop()
        except Violation as violation:
            _, errors = server.stop()
            raise Violation(f"{violation}\n{errors[-4_000:]}") from None
        except BaseException:
            server.kill()
            raise
        finally:
            server.process.close()
    faults = [line for line in errors.splitlines() if not any(expected in line for expected in _EXPECTED)]
    if status or faults:
        raise Violation(f"the server ended with {status}: {faults[:5]}")
    if memory_mb > MEMORY_MB:
        raise Violation(f"the server took {memory_mb} MB")
    return Report(count, account, stored, memory_mb, time.monotonic() - began)


async def _converse(port: int, account: Account, requests: int, seed: int, only: int | None) -> int:
    """Runs conversations, and returns their number."""
    numbers = iter(range(sys.maxsize) if only is None else [only])
    held = 0

    async def work() -> None:
        nonlocal held
        while account.requests < requests and (number := next(numbers, None)) is not None:
            held += 1
            try:
                await Conversation(port, account, f"{seed}:{number}").hold()
            except Violation as violation:
                raise Violation(f"conversation {number} of seed {seed}: {violation}") from None

    try:
        async with asyncio.TaskGroup() as group:
            for shape in SHAPES:
                group.create_task(stay(port, shape))
            for _ in range(AT_ONCE):
                group.create_task(work())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return held


def audit(server: Server, account: Account) -> int:
    """Pulls all messages of the kept subjects, and returns their number. Checks that each accepted message arrives
    once, and no refused one."""
    found: list[str] = []
    with server.connect() as connection:
        for subject in KEPT:
            asked: dict[str, Any] = {"consumer": "audit", "max_messages": 1_000}
            while pulls := connection.ok("POST", f"/v1/subjects/{subject}/groups/audit/pull", asked)["pulls"]:
                found += bodies(pulls)
                asked["settle"] = [{"receipt": pull["receipt"]} for pull in pulls]
        connection.ok("GET", "/v1/health")
    if len(set(found)) != len(found):
        raise Violation(f"{len(found) - len(set(found))} messages were stored twice")
    if lost := account.accepted.difference(found):
        raise Violation(f"{len(lost)} accepted messages are lost, such as {sorted(lost)[0]!r}")
    if smuggled := account.refused.intersection(found):
        raise Violation(f"{len(smuggled)} refused messages were stored, such as {sorted(smuggled)[0]!r}")
    return len(found)


def peak_mb(process: int) -> int:
    """Returns the largest memory of a process so far, in MB."""
    status = Path(f"/proc/{process}/status")
    if not status.exists():  # not Linux
        return 0
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) // 1_024


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description="Fuzzes a server of its own.")
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, metavar="CONVERSATION")
    options = parser.parse_args()
    try:
        report = fuzz(options.requests, options.seed, options.only)
    except Violation as violation:
        sys.stdout.write(f"{violation}\n")
        return 1
    sys.stdout.write(f"{report}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
