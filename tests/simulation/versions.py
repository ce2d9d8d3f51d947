"""Runs two versions of the library at once, as during a deployment: half of the producers, consumers and sweepers are
of the version before. ``python -m tests.simulation.versions FIRST:LAST`` runs these seeds.

The source of the version before lies beside this module, as a clone need not have the history, and is imported under
another name. Both versions share the modules of errors, ports and requests, by which the simulation speaks with them;
each has its own stored records and its own code. ``python -m tests.simulation.versions --pack TAG`` takes the source
of another version.
"""

import hashlib
import importlib
import io
import logging
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields, replace
from functools import cache
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import decode_source, spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any
from unittest.mock import patch

from hourwheel.deployment.deployment import Deployment
from tests.rooms import ROOT
from tests.simulation import actors
from tests.simulation.actors import Machine, Watches, open_deployment
from tests.simulation.draws import draw
from tests.simulation.plan import Plan
from tests.simulation.schedule import Outcome, run_plan, scaled
from tests.simulation.world import Process, Turns

PACKED = Path(__file__).with_name("before.tar.xz")
"""The library of the release before: a commit plays it until there is one."""

_AROUND = {"adapters", "api", "apps", "aws", "celery", "cli", "client", "console", "django", "embedded"}
"""Rooms around the protocol, of which no process of the simulation has anything."""

NAME = "hourwheel_before"
_LIBRARY = "layers/hourwheel/python/hourwheel"
_IMPORT = re.compile(r"^(\s*(?:from|import)) hourwheel(?=[. ])", re.MULTILINE)
_SHARED = (
    *(
        "errors",
        "locks",
        "times",
        "ports",
        "ports.machine",
        "ports.pushing",
        "ports.storage",
        "ports.timers",
        "ports.waking",
    ),
    *("model.fields", "model.messages", "model.pulls", "model.targets", "model.traces"),
)
_LIMITS = (
    *(("pull_log.claiming.claim_range", "EMPTY_ROWS"), ("ordered.selection", "AHEAD")),
    *(("pull_log.claiming.growth", "ALONE_PULLS"), ("pull_log.claiming.growth", "GROWS_MS")),
    *(("pull_log.claiming.ahead", "AHEAD_MS"), ("ordered.key_state_cache", "_SNAPSHOT_ROWS")),
    *(
        ("ordered.parked_messages", "MAX_PARKED"),
        ("ordered.parked_messages", "BLOCK"),
        ("ordered.later_messages", "BLOCK"),
    ),
    *(("ordered.snapshots", "PAGE_BYTES"), ("ordered.snapshots", "_PIECE_BLOCKS")),
    *(("delay.dispatch", "STEP_PICKS"), ("delay.changes", "_LOOK_SECONDS")),
)
"""The limits that a run lowers (``schedule.scaled``) and the version before has to share."""


class _Loader(SourceFileLoader):
    """Has a module of the version before import that version's modules."""

    def get_data(self, path: str) -> bytes:
        data = super().get_data(path)
        return _IMPORT.sub(rf"\1 {NAME}", decode_source(data)).encode() if path.endswith(".py") else data

    def get_code(self, fullname: str) -> Any:
        return self.source_to_code(self.get_data(self.path), self.path)  # no cache of the text before the change


class _Finder:
    """Finds the modules of the version before in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.partition(".")[0] != NAME:
            return None
        place = self._folder.joinpath(*name.split(".")[1:])
        package = place / "__init__.py"
        file = package if package.exists() else place.with_suffix(".py")
        if not file.exists():
            return None
        folders = [str(place)] if file == package else None
        return spec_from_file_location(name, file, loader=_Loader(name, str(file)), submodule_search_locations=folders)


def _extracted() -> Path:
    """Returns the folder with the library of the version before. Its name has the digest of what is packed."""
    folder = ROOT / "build" / "versions" / hashlib.sha256(PACKED.read_bytes()).hexdigest()[:16]
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent) as unfinished, tarfile.open(PACKED) as packed:
            packed.extractall(unfinished, filter="data")
            with suppress(FileExistsError, NotADirectoryError):  # another run was faster
                Path(unfinished, "library").rename(folder)
    return folder


def pack(revision: str) -> None:
    """Packs the modules of the protocol at a revision. The same ones give the same bytes."""
    command = ["git", "archive", "--prefix=library/", f"{revision}:{_LIBRARY}"]
    archived = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archived)) as source, tarfile.open(PACKED, "w:xz", preset=9) as packed:
        for member in source:
            if member.name.endswith(".py") and Path(member.name).parts[1] not in _AROUND:
                member.mtime = 0
                packed.addfile(member, source.extractfile(member))


@cache
def before(module: str) -> Any:
    """Returns a module of the version before, by its name below ``hourwheel``."""
    if NAME not in sys.modules:
        sys.meta_path.insert(0, _Finder(_extracted()))
        for shared in _SHARED:
            sys.modules[f"{NAME}.{shared}"] = importlib.import_module(f"hourwheel.{shared}")
    return importlib.import_module(f"{NAME}.{module}")


def open_before(machine: Machine, process: Process) -> Deployment:
    """Makes a new process of the version before, on the ports of one of the tree."""
    ours = open_deployment(machine, process)
    of_the_world = {"buckets", "threads"}
    context_fields = {field.name for field in fields(before("context").Context)} - of_the_world
    context = before("context").Context(**{name: getattr(ours.context, name) for name in context_fields})
    deployment: Deployment = before("deployment.deployment").Deployment(
        context,
        ours.targets,
        before("settling.leases").Leases(_watches=Watches(machine.world)),
        pending_counts=before("delay.lists.pending_counts").PendingCounts(_lock=Turns(machine.world)),
    )
    return deployment


@contextmanager
def two_versions(plan: Plan) -> Iterator[list[str]]:
    """Has every second producer, consumer and sweeper run the version before during the block. Yields the names of the
    processes of that version, which grow during a run."""
    opened: list[str] = []

    def open_one(machine: Machine, process: Process) -> Deployment:
        if not re.fullmatch(r"[pcw]\d*[02468](@\d+)?", process.name):
            return open_deployment(machine, process)
        opened.append(process.name)
        return open_before(machine, process)

    with ExitStack() as stack:
        stack.enter_context(scaled(plan))
        for module, limit in _LIMITS:
            value = getattr(importlib.import_module(f"hourwheel.{module}"), limit)
            stack.enter_context(patch.object(before(module), limit, value))
        stack.enter_context(patch.object(actors, "open_deployment", open_one))
        yield opened


def mixed(seed: int) -> Plan:
    """Draws a plan that both versions can follow: each actor is a process of its own."""
    return replace(draw(seed), together=False, answer_bytes=0, tag_room=None)


def run_mixed(plan: Plan) -> tuple[Outcome, list[str]]:
    """Makes a run of two versions. Returns its outcome, and the names of the processes of the version before."""
    with two_versions(plan) as opened:
        return run_plan(plan), opened


def main(span: str) -> int:
    # The errors that the library reports in a run are planned; any other error is a violation.
    logging.getLogger("hourwheel").setLevel(logging.CRITICAL)
    first, _, last = span.partition(":")
    failed = 0
    for seed in range(int(first), int(last)):
        outcome, _ = run_mixed(mixed(seed))
        if outcome.violation is not None:
            failed += 1
            sys.stdout.write(f"seed {seed}: {outcome.violation!r}\n")
    sys.stdout.write(f"{int(last) - int(first)} schedules of two versions, {failed} failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1] == "--pack":
        pack(sys.argv[2])
    else:
        sys.exit(main(sys.argv[1]))
