"""Opens a data directory, and runs the background work on it."""

import sys
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from aws_lambda_powertools import Logger

from hourwheel.adapters.files import FileBlobs
from hourwheel.adapters.metrics import CountingMeter
from hourwheel.adapters.sqlite.store import SqliteStore
from hourwheel.adapters.sqlite.synced_mark import SyncedMark
from hourwheel.adapters.webhooks import Webhooks
from hourwheel.api.boundary import Boundary, log_line
from hourwheel.archive.archiver import Archiver, CommitLimits
from hourwheel.archive.rebuild import unfinished
from hourwheel.buckets import lease
from hourwheel.buckets.buckets import LEAD_MS, buckets
from hourwheel.cells.cell_marks import home_id
from hourwheel.cells.cell_storage import GuardedCells
from hourwheel.cells.cells import all_cells, given_up_names, registered_cells
from hourwheel.context import Context, Settings
from hourwheel.delay.maintenance import buckets_due_soon, start_wheels
from hourwheel.deployment.deployment import Deployment
from hourwheel.embedded.directories.cells import EmbeddedCells
from hourwheel.embedded.directories.directory import (
    INLINE_BYTES,
    Neighbours,
    archive_of,
    check_cells_of_new_home,
    check_not_given_up,
    database,
    lake_of,
    prepare,
    synced,
)
from hourwheel.embedded.directories.loss import check_archived, check_complete
from hourwheel.embedded.directories.reserve import MEGABYTE, Reserves, release_spare
from hourwheel.embedded.directories.roster import Roster
from hourwheel.embedded.greenlets import GreenletBlobs, GreenletRunner, GreenletStore, LoopStore
from hourwheel.embedded.lake import LakeDirectory
from hourwheel.embedded.options import ServeOptions
from hourwheel.embedded.readiness import Readiness, WriteWatch
from hourwheel.embedded.targets import EmbeddedTargets, load_handler
from hourwheel.embedded.wakeups import EmbeddedWakeups
from hourwheel.embedded.workers.housekeeping import Repeating
from hourwheel.embedded.workers.pushes import EmbeddedPushes
from hourwheel.embedded.workers.wheels import Wheels
from hourwheel.errors import Broken
from hourwheel.logs.large_batches import drop_expired_batches
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.log_names import HOME
from hourwheel.push import state
from hourwheel.retention.archive_format import keep_archive_format
from hourwheel.retention.watermarks import archived_ms
from hourwheel.system import SystemClock, SystemIds

_LOOK_SECONDS = 0.1  # pulls and wheels here notice a message that another server has stored this late at most
_OTHERS_SECONDS = 1.0  # the leases of a killed server are taken over within this time
_MARK_SECONDS = 1.0  # after a power failure the mark is at most this old (docs/decisions/0019)
_LEASES_SECONDS = 1.0  # the end of a lease is noticed this late at most
_PUSHES_SECONDS = 1.0  # a pusher starts this late at most after a pause
_CHANGES_SECONDS = 1.0  # the time between two looks for cancels and moves that were cut off
_CUT_OFF_MS = 2_000
"""A cancel or a move that is not decided after this time was most likely cut off."""

_SWEEP_SECONDS = 60.0  # as on AWS, where the schedule of the sweeper has no shorter period
_HISTORY_SECONDS = 60.0  # the history of groups has a point a minute
_ARCHIVE_MS = 3_000
"""The longest run of the archiver, for which a stop of the server waits."""
# Larger batches of noise are compressed at level -3: a batch of 208 KB, half of it base64, takes 127 us instead of 527,
# and a third more space. On one machine CPU is scarcer than room on the disk.
_NOISE_BYTES = 4 * 1024
_SUMMARY_BYTES = 1_024  # without a summary a filter unpacks the batch, which costs far more than a kilobyte of disk
_TICK_MS = 0  # wheels sleep until a message is due (docs/decisions/0032-no-ticks-on-one-machine.md)
_WHEELS = 6  # wheels that turn at the same time: each has a thread, and all share one interpreter lock

_PUSH_ADVICE = "to push to this machine, restart the server with --push-loopback"


class Runtime:
    """Holds the cell of a server and its background work. The constructor opens ``options.data``, which other processes
    may have open too.

    Raises the errors of the store, ``OSError``, and ``ValueError`` for a target that cannot be loaded.
    """

    def __init__(self, options: ServeOptions) -> None:
        self._options = options
        handlers = {name: load_handler(path) for name, path in options.targets.items()}
        check_cells_of_new_home(options.data, options.cells)
        prepare(options.data)
        release_spare(options.data)
        with ExitStack() as opened:
            self._mark = SyncedMark(synced(options.data))
            opened.callback(self._mark.close)
            # By another value than FULL the operator accepts that a power cut may lose the last commits.
            lossy = options.accept_loss or options.synchronous != "FULL"
            check_complete(database(options.data), self._mark, accept_loss=lossy)
            store = SqliteStore(database(options.data), synchronous=options.synchronous, mark=self._mark)
            opened.callback(store.close)
            self._store = store
            ids, clock = SystemIds(), SystemClock()
            self._name = ids.unique(clock.now_ms())
            self._roster = Roster(options.data, self._name)
            self._living = self._roster.living()
            opened.callback(self._roster.close)
            self._neighbours = Neighbours(options.data)
            opened.callback(self._neighbours.close)
            self._closing = opened.pop_all()
        self.meter = CountingMeter()
        self.connections: Callable[[], int] = lambda: 0
        """Returns the number of open connections; a server sets it."""
        self.greenlets = GreenletRunner()
        self.threads = ThreadPoolExecutor(options.threads, "request")
        self._closing.callback(self.threads.shutdown)
        self.tracing = ThreadPoolExecutor(1, "trace")
        self._closing.callback(self.tracing.shutdown)
        self.wakeups = EmbeddedWakeups(max_waiting=options.max_waiting, greenlets=self.greenlets)
        self._wheels = Wheels(clock, at_once=_WHEELS)
        self._pushes = EmbeddedPushes()
        self.lake = LakeDirectory(lake_of(options.data))
        self.wakeups.listen(self._pushes.heard)
        home = GreenletStore(store, self.greenlets)
        self._cells = self._open_cells(lossy)
        self.reserves = Reserves(options.data, options.cells, options.reserve_mb * MEGABYTE)
        self.readiness = Readiness(store.probe, self.reserves)
        self._closing.callback(self.readiness.close)
        context = Context(
            store=home,
            cells=None if self._cells is None else GuardedCells(self._cells, home, clock, ids),
            blobs=GreenletBlobs(FileBlobs(options.data), self.greenlets, self.threads),
            clock=clock,
            ids=ids,
            wakeups=self.wakeups,
            early_wakeups=self.wakeups,
            meter=self.meter,
            timers=self._wheels,
            wheel_wakeups=self._wheels,
            pushes=self._pushes,
            lake=self.lake,
            reserve=self.reserves,
            settings=_settings(options),
        )
        archive = FileBlobs(archive_of(options.data))
        self._check(context, archive)
        webhooks = Webhooks(clock, loopback=options.push_loopback, advice=_PUSH_ADVICE)
        self.deployment = Deployment(context, EmbeddedTargets(webhooks, handlers))
        self._archiver = Archiver(context, self.deployment.registry, archive, CommitLimits(commit_ms=_ARCHIVE_MS))
        self._stopping = threading.Event()
        self.deployment.prepare()
        logger = Logger(service="hourwheel", level="WARNING", stream=sys.stderr, json_serializer=log_line)
        self.boundary = Boundary(self.deployment, logger)

    def _check(self, context: Context, archive: FileBlobs) -> None:
        """Closes what is open, and raises, if the data is half rebuilt, or lacks what was archived, or if this
        version must not use the archive."""
        data = self._options.data
        try:
            if unfinished(context):
                raise Broken(f"{data} is half rebuilt: run hourwheel pipeline run rebuild --data {data}")
            check_archived(context, archive, accept_loss=self._options.accept_loss)
        except Exception:
            self._closing.close()
            raise

    def _open_cells(self, lossy: bool) -> EmbeddedCells | None:
        """Opens the directories of other cells; returns None without any. Closes what was opened before after an
        error."""
        if not self._options.cells:
            return None
        clock = SystemClock()
        try:
            check_not_given_up(self._options.cells, given_up_names(self._store, SystemIds()))
            home = home_id(self._store, SystemIds(), clock.now_ms())
            cells = EmbeddedCells(
                self._options.cells,
                home,
                added=[cell.name for cell in registered_cells(self._store, SystemIds())],
                synchronous=self._options.synchronous,
                accept_loss=lossy,
                greenlets=self.greenlets,
                threads=self.threads,
            )
        except Exception:
            self._closing.close()
            raise
        self._closing.callback(cells.close)
        return cells

    def start(self) -> None:
        """Starts the background work: wheels, pushes, the end of leases, the sweeper, the archiver, and wakeups."""
        context = self.deployment.context
        self._take_over(self._roster.living())
        for bucket, record in buckets(context):
            if not record.closed_ms:
                context.timers.at(bucket.start_ms - LEAD_MS, bucket.name)
        self._wheels.start(self.wheel_deployment(), self._name, self.boundary)
        self._closing.callback(self._wheels.stop)
        self._pushes.begin(self.deployment, self._name, self.boundary)
        self._closing.callback(self._pushes.stop)
        sweeper = self.deployment.sweeper
        self._repeat("pushing", self._pushes.look, _PUSHES_SECONDS)
        self._repeat("watching other servers", self._watch_others, _OTHERS_SECONDS)
        self._repeat("watching writes", WriteWatch(self._store, self._roster).look, _OTHERS_SECONDS)
        self._repeat("keeping the mark", self._mark.flush, _MARK_SECONDS)
        if self._cells is not None:
            self._repeat("keeping the marks of cells", self._cells.flush_marks, _MARK_SECONDS)
        self._repeat("waking", self._wake, _LOOK_SECONDS)
        self._repeat("finishing changes", partial(sweeper.delayed.finish_changes, _CUT_OFF_MS), _CHANGES_SECONDS)
        self._repeat("tending delayed work", sweeper.delayed.tend, _SWEEP_SECONDS)
        self._repeat("ending leases", sweeper.end_busy_leases, _LEASES_SECONDS)
        self._repeat("keeping the history", self.deployment.overview.look, _HISTORY_SECONDS)
        self._repeat("sweeping", self._sweep, _SWEEP_SECONDS)
        if self._options.archive_seconds:
            self._repeat("archiving", self._archive, self._options.archive_seconds)

    def wheel_deployment(self) -> Deployment:
        """Returns the cell for the threads of wheels: the loop runs their transactions."""
        context = self.deployment.context
        deployment = replace(self.deployment, context=replace(context, store=LoopStore(self._store, self.greenlets)))
        deployment.registry = self.deployment.registry
        return deployment

    def unopened_cells(self) -> list[str]:
        """Returns the names of the registered cells whose directories the options do not name."""
        opened = {HOME, *(() if self._cells is None else self._cells.names())}
        return [record.name for record in all_cells(self.deployment.context) if record.name not in opened]

    @property
    def blocked_seconds(self) -> float:
        """The seconds for which another process has kept this one from writing; 0 if none does."""
        return self._store.blocked_seconds

    def close(self) -> None:
        """Stops the background work, then closes the files. Called when no request is under way."""
        self._stopping.set()
        self.wakeups.close()
        self._store.uninvite()
        if self._cells is not None:
            self._cells.uninvite()
        self._closing.close()

    def _repeat(self, name: str, work: Callable[[], object], seconds: float) -> None:
        self._closing.callback(Repeating(name, work, seconds=seconds, boundary=self.boundary).stop)

    def _watch_others(self) -> None:
        living = self._roster.living()
        if self._living - living:
            self._take_over(living)
            self._pushes.look_anew()
        # Assigned last: after an error the next call finds the same servers missing again.
        self._living = living

    def _take_over(self, living: Collection[str]) -> None:
        """Ends the leases of servers that no longer live, and starts the wheels that are due, so that wheels and
        pushers need not wait until the leases run out.
        """
        context = self.deployment.context
        lease.expire_wheel_leases(context, living)
        state.expire_push_leases(context, living)
        start_wheels(context, buckets_due_soon(context))

    def _wake(self) -> None:
        wrote = self._neighbours.wrote()
        if wrote or (self._cells is not None and self._cells.wrote()):
            self.wakeups.announce_all()
            self._wheels.announce_all()
            self._pushes.heard_all()

    def _archive(self) -> None:
        """Archives in runs of a few seconds until no row is left, or the server stops."""
        clock = self.deployment.context.clock
        # Not at the start: a queue whose archive cannot be written goes on without it.
        keep_archive_format(self._archiver.archive)
        while not self._stopping.is_set():
            report = self._archiver.run(clock.now_ms() + _ARCHIVE_MS)
            if report.complete or not report.commits:
                return

    def _sweep(self) -> None:
        self.reserves.keep_spares()
        context = self.deployment.context
        while self.deployment.sweeper.sweep_subjects().is_cut_off and not self._stopping.is_set():
            pass  # here no clock starts the next sweep while this one has work
        before_ms = min(context.clock.now_ms(), archived_ms(context))
        drop_expired_batches(context.blobs, before_ms)
        if self._cells is not None:
            for cell in self._cells.names():
                drop_expired_batches(self._cells.storage(cell).blobs, before_ms)


def _settings(options: ServeOptions) -> Settings:
    return Settings(
        inline_bytes=INLINE_BYTES,
        noise_bytes=_NOISE_BYTES,
        summary_bytes=_SUMMARY_BYTES,
        tick_ms=_TICK_MS,
        bucket_minutes=options.bucket_minutes,
        retry=RetryPolicy(first_seconds=options.retry_seconds),
        archive=options.archive_seconds > 0,
        auto_create=options.auto_create,
        max_subjects=options.max_subjects,
        max_groups=options.max_groups,
        # Cells on disks of their own take batches at the same time, because their disks sync at the same time.
    )
