"""Defines the state of a rebuild, and its report."""

import msgspec


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a rebuild: rows that were stored before ``archived_ms`` are back. ``replayed``: messages whose
    hand-over was repeated; ``lost``: messages of which the archive has a hand-over and nothing else; ``unreadable``:
    messages that were archived without their bytes; ``unreadable_segments``: those of the archive that were
    skipped. ``lost_manifests``: why each manifest was skipped that cannot be read; ``lost_rows``: the rows of all logs
    that are known to have been named by skipped manifests alone."""

    archived_ms: int
    gap: int
    manifests: int
    subjects: int = 0
    groups: int = 0
    rows: int = 0
    messages: int = 0
    unreadable: int = 0
    replayed: int = 0
    lost: int = 0
    buckets: int = 0
    unreadable_segments: tuple[str, ...] = ()
    lost_manifests: tuple[str, ...] = ()
    lost_rows: int = 0
    finished_ms: int = 0


class Rebuilding(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The state of a rebuild. ``began_ms``: rows that expired before this time are not restored. ``restored``: the
    messages of the manifests below this number are back."""

    began_ms: int
    end_manifest: int
    restored: int = 0
    rebuilt: Rebuilt | None = None
