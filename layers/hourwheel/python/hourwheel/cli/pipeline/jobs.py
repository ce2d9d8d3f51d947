"""Runs the jobs: the archiver and the rebuild in this process, the others in Spark."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from hourwheel.cli.pipeline.locations import Locations, Missing
from hourwheel.cli.pipeline.output import Output
from hourwheel.system import SystemClock

# The extra ``pipeline`` alone installs these packages: the functions below import them.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from hourwheel_pipeline.jobs.job_names import Job
    from hourwheel_pipeline.jobs.status import Status

ARCHIVE, DAILY, REBUILD, TRACE = "archive", "daily", "rebuild", "trace"
JOBS = (
    *(ARCHIVE, "compact", "reconcile", "metrics", "report", "maintain", DAILY),
    *("repair", "replay", REBUILD, TRACE),
)
_ARCHIVE_SECONDS = 3_600  # the archiver returns when no row is left, in general long before


def archive_logs(data: Path, archive: Path, cells: Mapping[str, Path]) -> Any:
    from hourwheel.adapters.files import FileBlobs
    from hourwheel.archive.archiver import Archiver
    from hourwheel.embedded.offline import opened
    from hourwheel.retention.archive_format import keep_archive_format
    from hourwheel.sweep.erasure import make_registry

    with opened(data, cells=cells) as context:
        blobs = FileBlobs(archive)
        keep_archive_format(blobs)
        archiver = Archiver(context, make_registry(context), blobs)
        return archiver.run(context.clock.now_ms() + _ARCHIVE_SECONDS * 1_000)


def rebuild_store(locations: Locations, job_options: Mapping[str, str]) -> Any:
    from hourwheel.adapters.files import FileBlobs
    from hourwheel.archive.rebuild import GAP, rebuild
    from hourwheel.embedded.offline import opened
    from hourwheel.retention.archive_format import check_archive

    try:
        options = msgspec.convert(job_options, _RebuildOptions, strict=False)  # the values are texts
    except msgspec.ValidationError as error:
        raise typer.BadParameter(str(error)) from error
    if locations.data is None:
        raise typer.BadParameter("name the --data directory to rebuild")
    with opened(locations.data, cells=locations.cells, accept_loss=True) as context:
        archive = FileBlobs(locations.archive)
        check_archive(archive)
        return rebuild(
            context, archive, gap=GAP if options.gap is None else options.gap, skip_damaged=options.skip_damaged
        )


class _RebuildOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    gap: int | None = None
    skip_damaged: bool = False


def spark_reports(
    job: str, locations: Locations, job_options: Mapping[str, str], master: str, output: Output
) -> Iterator[tuple[str, Any]]:
    """Returns an iterator that runs a job, or all daily jobs, and yields the name and report of each job as soon as it
    ends; for a job that fails, its ``HourwheelError``. Raises ``Missing`` without Spark, and ``Rejected`` for wrong
    options, before anything runs."""
    try:
        from hourwheel_pipeline.jobs.job_names import jobs_of, options_of, read_options
    except ModuleNotFoundError as error:
        raise _lacking(error) from error
    jobs = jobs_of(job)
    names = {option.name for option in options_of(jobs)}
    folders = {name: text for name, text in locations.options.items() if name in names}
    texts = {**folders, **job_options}
    read_options(jobs, texts, SystemClock().now_ms())
    return _reports(job, jobs, texts, locations, master, output)


def _reports(
    name: str, jobs: Sequence["Job"], texts: Mapping[str, str], locations: Locations, master: str, output: Output
) -> Iterator[tuple[str, Any]]:
    from hourwheel_pipeline.jobs.job_names import read_options, reports_of
    from hourwheel_pipeline.runs.session import session

    now_ms = SystemClock().now_ms()
    options = read_options(jobs, texts, now_ms)
    scratch = None if locations.data is None else locations.data / "scratch"

    @cache  # a job that finds nothing to do starts no Spark; several jobs share one
    def start() -> "SparkSession":
        with output.aside(locations.data):
            return session(name, master=master, scratch=scratch)

    try:
        for chosen, report in reports_of(jobs, options, start, now_ms):
            yield chosen.name, report
    finally:
        if start.cache_info().currsize:
            start().stop()


def lake_status_of(locations: Locations, deep: bool) -> "Status":
    try:
        from hourwheel_pipeline.jobs.status import status_of
        from hourwheel_pipeline.runs.failures import in_one_sentence
    except ModuleNotFoundError as error:
        raise _lacking(error) from error
    with in_one_sentence():
        return status_of(locations.archive, locations.lake, deep=deep)


def _lacking(error: ModuleNotFoundError) -> Missing:
    return Missing(f"the pipeline needs {error.name}: pip install 'hourwheel[pipeline]'")
