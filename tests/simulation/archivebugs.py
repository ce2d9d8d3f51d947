"""Plants bugs of the archive: the real code with one clause of the protocol left out."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

from hourwheel.archive import archiver, rebuild, sources
from hourwheel.dead_letters import dead
from hourwheel.delay import maintenance
from hourwheel.retention import archive_progress, watermarks
from hourwheel.retention.manifests import Manifest, manifest_key, stored
from hourwheel.settling import leases
from hourwheel.sweep import retention
from tests.simulation.bugs import Bug, registrar
from tests.simulation.draws import archived, delayed
from tests.simulation.plan import Plan

ARCHIVED: list[Bug] = []
planted = registrar(ARCHIVED)


def _archived(plan: Plan) -> Plan:
    return archived(plan, Random(plan.seed))


def _brief(plan: Plan) -> Plan:
    """Sharpens a plan: messages expire soon, and stores remove them at once."""
    return replace(_archived(plan), retention_seconds=60, trims=True, moves=("redrive", "drop"), operators=1)


def _over(plan: Plan) -> Plan:
    return _archived(delayed(plan, Random(plan.seed)))


@planted(sharpen=_archived)
def a_manifest_replaces_another() -> Iterator[None]:
    def commit(archive: Any, manifest: Manifest) -> bool:
        archive.delete(manifest_key(manifest.number))
        return real(archive, manifest)

    real = archiver.commit
    with patch.object(archiver, "commit", commit):
        yield


@planted(sharpen=_archived)
def who_comes_second_thinks_that_he_has_committed() -> Iterator[None]:
    def commit(archive: Any, manifest: Manifest) -> bool:
        real(archive, manifest)
        return True

    real = archiver.commit
    with patch.object(archiver, "commit", commit):
        yield


def _mortal(plan: Plan) -> Plan:
    """Sharpens a plan: archivists often end between two calls."""
    return replace(_archived(plan), archivists=2, faults=replace(plan.faults, crash=0.06), transactional=False)


@planted(sharpen=_mortal)
def watermarks_do_not_follow_the_manifests_of_others() -> Iterator[None]:
    def catch_up_alone(context: Any, archive: Any) -> Any:
        current = (
            watermarks.head_record(context).load()
            or watermarks.head_record(context).swap(None, watermarks.ArchiveHead()).current
        )
        while (raw := stored(archive, current.value.number)) is not None:
            manifest = archive_progress._following(context, current.value, raw)
            value = archive_progress.committed(current.value, manifest, raw.digest)
            current = watermarks.head_record(context).swap(current, value).current
        return current

    with patch.object(archiver, "catch_up", catch_up_alone):
        yield


@planted(sharpen=_archived)
def pulls_are_archived_while_they_are_open() -> Iterator[None]:
    with patch.object(sources, "CLOSED", 0), patch.object(sources, "_LONG_OPEN_MS", 0):
        yield


@planted(sharpen=_brief)
def rows_are_trimmed_before_they_are_archived() -> Iterator[None]:
    def removable_below(context: Any, kind: str, log: str, below: int) -> int:
        return below

    with (
        patch.object(retention, "removable_below", removable_below),
        patch.object(dead, "removable_below", removable_below),
        patch.object(leases, "removable_below", removable_below),
    ):
        yield


@planted(sharpen=_over)
def a_bucket_is_dropped_before_it_is_archived() -> Iterator[None]:
    with patch.object(maintenance, "_archived", lambda context, bucket: True):
        yield


@planted(sharpen=_archived)
def a_rebuilt_group_begins_anew() -> Iterator[None]:
    with patch.object(rebuild._Rebuild, "_write_checkpoints", lambda self: None):
        yield


@planted(sharpen=_archived)
def a_rebuilt_store_gives_sequences_out_again() -> Iterator[None]:
    with patch.object(rebuild._Rebuild, "_count", lambda self: None):
        yield
