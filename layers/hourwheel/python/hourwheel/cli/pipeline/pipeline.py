"""``hourwheel pipeline``: runs the jobs of the pipeline, and shows their state, on this machine or on AWS."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import mkstemp
from traceback import format_exception
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from hourwheel.cli.messages.messages import write_traces
from hourwheel.cli.output import write_fields, write_json, write_line, write_table
from hourwheel.cli.pipeline.deployed import Deployed
from hourwheel.cli.server.serve_options import CellOption, directories_of
from hourwheel.cli.settings import settings_of
from hourwheel.client import TracePage
from hourwheel.embedded.directories.ownership import check_directory
from hourwheel.errors import HourwheelError
from hourwheel.system import SystemClock

# The extra ``pipeline`` alone installs these packages: the functions below import them.
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from hourwheel_pipeline.jobs import Job
    from hourwheel_pipeline.status import Status

_EXITS = "Exit status: 0 all is well; 1 a job failed; 2 wrong usage; 3 findings; 4 the archive or the lake is damaged."

app = typer.Typer(no_args_is_help=True, help="Archive the logs, and work with the archive in Spark.", epilog=_EXITS)

DAILY = "daily"
TRACE = "trace"
JOBS = (
    *("archive", "compact", "reconcile", "metrics", "report", "maintain", DAILY),
    *("repair", "replay", "rebuild", TRACE),
)
_ARCHIVE_SECONDS = 3_600  # the archiver returns when no row is left, in general long before
_FREE = {"ignore_unknown_options": True}  # the jobs have options of their own, which Spark's side parses

DataOption = Annotated[Path | None, typer.Option(help="Data directory of a server, with its archive and lake.")]
ArchiveOption = Annotated[str | None, typer.Option(help="The archive, if elsewhere: a folder or s3://bucket/prefix.")]
LakeOption = Annotated[str | None, typer.Option(help="The lake, if elsewhere: a folder or s3://bucket/prefix.")]
StackOption = Annotated[str | None, typer.Option(help="The CloudFormation stack of a cell on AWS, instead of --data.")]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", help="Print Spark's own output, instead of writing it to a file.")
]
TracebackOption = Annotated[bool, typer.Option("--traceback", help="Show where in the code a command failed.")]


class Missing(HourwheelError):
    """Says that a package or file that the command needs is missing."""


class Locations(msgspec.Struct, frozen=True):
    """Says where the archive and the lake are, and the data directory if they belong to one."""

    data: Path | None
    archive: str
    lake: str
    cells: dict[str, Path] = {}
    """The data directories of other cells, by name."""

    @property
    def options(self) -> dict[str, str]:
        return {"archive": self.archive, "lake": self.lake, "output": self.report}

    @property
    def report(self) -> str:
        return f"{self.lake.rstrip('/')}/report"


@app.command(context_settings=_FREE, epilog=_EXITS)
def run(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB] [--NAME VALUE]...",
            help="archive, compact, reconcile, metrics, report, maintain; daily: all of these; repair, replay, rebuild,"
            " trace",
        ),
    ] = None,
    data: DataOption = None,
    archive: ArchiveOption = None,
    lake: LakeOption = None,
    cell: CellOption = None,
    stack: StackOption = None,
    master: Annotated[str, typer.Option(help="The Spark master, on this machine.")] = "local[*]",
    verbose: VerboseOption = False,
    traceback: TracebackOption = False,
) -> None:
    """Run a job, or all daily jobs. Options of the job follow as --name value: see docs/pipeline.md.

    With --stack start the job on AWS, and print the id of its run.

    Example: hourwheel pipeline run replay --data ./queue --name again --subject orders --where "key = 'customer-42'"
    """
    job, *rest = words if words and not words[0].startswith("--") else [DAILY, *(words or ())]
    if job not in JOBS:
        raise typer.BadParameter(f"there is no job {job!r}: the jobs are {', '.join(JOBS)}")
    job_options = _job_options(ctx, job, rest)
    if stack is not None and job == TRACE:
        raise typer.BadParameter("trace reads the lake here: name --archive and --lake, as pipeline status shows them")
    if stack is not None:
        write_json({"job": job, "started": Deployed.of(stack, settings_of(ctx).region).start(job, job_options)})
        return
    locations = msgspec.structs.replace(_locations(data, archive, lake), cells=directories_of(cell or []))
    if data is not None and data.exists():
        check_directory(data)
    if archive is not None and data is not None and job in ("archive", DAILY):
        raise typer.BadParameter(f"the logs of {data} are archived in it: --archive is for jobs that read")
    if job == "archive" and locations.data is None:
        raise typer.BadParameter("name the --data directory whose logs are to be archived")
    with _errors_as_sentences(traceback):
        _run(ctx, job, locations, job_options, Output(settings_of(ctx).json, verbose), master)


def _run(
    ctx: typer.Context, job: str, locations: Locations, job_options: Mapping[str, str], output: "Output", master: str
) -> None:
    # Made before anything is archived: a package that is missing, or a wrong option, ends the run without effect.
    jobs = None if job in ("archive", "rebuild") else _spark(job, locations, job_options, master, output)
    archived = None
    if job in ("archive", DAILY) and locations.data is not None:
        archived = _archive(locations.data, Path(locations.archive), locations.cells)
        output.write("archive", archived)
    if job == "rebuild":
        rebuilt = _rebuild(locations, job_options)
        output.write(job, rebuilt)
        _end(list(rebuilt.unreadable_segments), 4 if rebuilt.unreadable_segments else 0)
    elif jobs is not None:
        reports = []
        for name, report in jobs:
            output.write(name, report)
            reports.append(report)
        if job == TRACE and not settings_of(ctx).json:
            (report,) = reports
            write_traces(msgspec.convert(msgspec.to_builtins(report), TracePage).messages)
        _end_with(reports)
    if archived is not None and not archived.complete and not archived.cells_out:
        raise typer.Exit(1)  # the log above names the errors


class Output:
    """Writes the reports of a run, one line each, and sends Spark's own output to a file, unless ``verbose``."""

    def __init__(self, json: bool, verbose: bool) -> None:
        self._json, self._verbose = json, verbose
        self._began_ms = SystemClock().now_ms()

    def write(self, job: str, report: Any) -> None:
        """Writes the report of a job, with the time since the last report."""
        from hourwheel_pipeline.summaries import summary_of

        ended_ms = SystemClock().now_ms()
        if self._json:
            write_json({"job": job, "report": report})
        else:
            write_line(f"{job:<9} {summary_of(report)} ({(ended_ms - self._began_ms) / 1_000:.1f} s)")
        self._began_ms = ended_ms

    @contextmanager
    def aside(self, data: Path | None) -> Iterator[None]:
        """Sends the stderr of Spark and its workers, which start within the block, to a log file, and prints its path.

        The processes inherit descriptor 2, so the descriptor is replaced, not ``sys.stderr``.
        """
        if self._verbose:
            yield
            return
        number, path = _log_file(data)
        terminal = os.dup(2)
        sys.stderr.flush()
        os.dup2(number, 2)
        try:
            yield
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
            os.close(number)
            typer.echo(f"Spark's own output is in {path}", err=True)


def _log_file(data: Path | None) -> tuple[int, str]:
    """Opens a log file that only its owner may read. Returns its descriptor and path."""
    if data is None:
        return mkstemp(prefix="hourwheel-spark-", suffix=".log")
    path = str(data / "spark.log")
    # A link in the folder must not direct the output elsewhere. Appended: several processes write.
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW, 0o600), path


@app.command(epilog=_EXITS)
def status(
    ctx: typer.Context,
    data: DataOption = None,
    archive: ArchiveOption = None,
    lake: LakeOption = None,
    stack: StackOption = None,
    deep: Annotated[bool, typer.Option("--deep", help="Also read the whole archive, and compare checksums.")] = False,
    traceback: TracebackOption = False,
) -> None:
    """Show how far the archive and the lake are, whether the archive is complete, and the last findings.

    Example: hourwheel pipeline status --data ./queue --deep
    """
    if stack is not None:
        deployed = Deployed.of(stack, settings_of(ctx).region)
        runs = deployed.runs()
        if settings_of(ctx).json:
            write_json({"archive": deployed.archive, "lake": deployed.lake, "runs": runs})
        else:
            write_line(f"archive {deployed.archive}, lake {deployed.lake}, tables in {deployed.database}")
            write_table(["run", "job", "state", "since", "detail"], [tuple(run.values()) for run in runs])
        return
    locations = _locations(data, archive, lake)
    with _errors_as_sentences(traceback):
        lake_status = _status(locations, deep)
        _show(ctx, lake_status, data)
        _end_with([lake_status])


def _show(ctx: typer.Context, status: "Status", data: Path | None) -> None:
    from hourwheel_pipeline.words import counted, found_words

    if settings_of(ctx).json:
        write_json(status)
        return
    write_fields(status.archive)
    inspected, how = status.inspection, "read" if status.inspection.deep else "listed"
    size = f"{counted(inspected.segments, 'segment')}, {counted(inspected.bytes, 'byte')}"
    write_line(f"{size}, {how}: {counted(inspected.count, 'problem')}")
    write_table(
        ["table", "manifests behind", "quarantined", "rows"],
        [(table.table, table.behind, table.quarantined, table.rows) for table in status.tables],
    )
    findings = (
        "never reconciled"
        if status.findings is None
        else f"{found_words(status.findings)}, looked for at {status.found_at}"
    )
    write_line(findings)
    if not status.archive.manifests:
        where = "DIRECTORY" if data is None else data
        write_line(
            f"nothing has been archived yet: hourwheel serve --data {where} --archive-every 60 archives each minute,"
            f" hourwheel pipeline run --data {where} once"
        )


@app.command()
def report(
    ctx: typer.Context,
    data: DataOption = None,
    lake: LakeOption = None,
    stack: StackOption = None,
) -> None:
    """Print the path of the last report, and its findings.

    Example: hourwheel pipeline report --data ./queue
    """
    if stack is not None:
        write_line(Deployed.of(stack, settings_of(ctx).region).report)
        return
    folder = Path(_locations(data, lake, lake).report)
    if not (folder / "report.json").exists():
        raise Missing(f"there is no report in {folder}: run hourwheel pipeline run first")
    encoded = (folder / "report.json").read_bytes()
    if settings_of(ctx).json:
        write_json(msgspec.json.decode(encoded))
        return
    from hourwheel_pipeline.words import found_words

    counts = (msgspec.json.decode(encoded)["reconciled"] or {}).get("counts")
    write_line("never reconciled" if counts is None else found_words(counts))
    write_line(str(folder / "report.html"))


@contextmanager
def _errors_as_sentences(traceback: bool) -> Iterator[None]:
    """Turns an error in the block into one sentence, or a traceback, on stderr, and ends the command with the exit
    status of the error."""
    from hourwheel_pipeline.exits import of_error

    try:
        yield
    except (typer.BadParameter, typer.Exit, typer.Abort):
        raise
    except Exception as error:
        if traceback:
            typer.echo("".join(format_exception(error)), err=True)
        else:
            typer.echo(f"hourwheel: {_sentence(error)}", err=True)
        raise typer.Exit(of_error(error)) from error


def _sentence(error: Exception) -> str:
    if isinstance(error, HourwheelError):
        return str(error)
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first} (--traceback shows where)"


def _end_with(reports: Sequence[Any]) -> None:
    """Prints the damage that the reports name, and ends the command with the exit status that follows from them."""
    from hourwheel_pipeline.outcomes import damage_in, of_reports

    damage = dict.fromkeys(sentence for report in reports for sentence in damage_in(report))
    _end(list(damage), of_reports(reports))


def _end(damage: Sequence[str], status: int) -> None:
    for sentence in damage:
        typer.echo(f"hourwheel: damaged: {sentence}", err=True)
    if status:
        raise typer.Exit(status)


def _locations(data: Path | None, archive: str | None, lake: str | None) -> Locations:
    if data is None and (archive is None or lake is None):
        raise typer.BadParameter("name --data, or --archive and --lake, or on AWS --stack")
    if data is not None and not (data / "format").exists() and archive is None:
        raise typer.BadParameter(f"{data} is no data directory: give the directory of hourwheel serve --data")
    return Locations(data, archive or str(data / "archive" if data else ""), lake or str(data / "lake" if data else ""))


def _job_options(ctx: typer.Context, job: str, words: Sequence[str]) -> dict[str, str]:
    """Returns the options of the job. ``replay`` sends to a server, so it also gets the shared options."""
    job_options = _pairs(words)
    if job == "replay":
        shared = settings_of(ctx)
        named = {"url": shared.url, "token": shared.token, "sign": shared.sign, "region": shared.region}
        job_options = {**{name: text for name, text in named.items() if text is not None}, **job_options}
    return job_options


def _pairs(words: Sequence[str]) -> dict[str, str]:
    """Parses ``--name value``, ``--name=value``, and ``--name`` alone, which is true."""
    options: dict[str, str] = {}
    index = 0
    while index < len(words):
        name, equals, text = words[index].partition("=")
        if not name.startswith("--"):
            raise typer.BadParameter(f"{words[index]!r} is not of the form --name value")
        index += 1
        if not equals and index < len(words) and not words[index].startswith("--"):
            text, index = words[index], index + 1
        elif not equals:
            text = "true"
        options[name[2:].replace("-", "_")] = text
    return options


def _archive(data: Path, archive: Path, cells: Mapping[str, Path]) -> Any:
    from hourwheel.adapters.files import FileBlobs
    from hourwheel.archive.archiver import Archiver
    from hourwheel.embedded.offline import opened
    from hourwheel.sweep.erasure import make_registry

    with opened(data, cells=cells) as context:
        archiver = Archiver(context, make_registry(context), FileBlobs(archive))
        return archiver.run(context.clock.now_ms() + _ARCHIVE_SECONDS * 1_000)


def _rebuild(locations: Locations, job_options: Mapping[str, str]) -> Any:
    from hourwheel.adapters.files import FileBlobs
    from hourwheel.archive.rebuild import GAP, rebuild
    from hourwheel.embedded.offline import opened

    try:
        options = msgspec.convert(job_options, _RebuildOptions, strict=False)  # the values are texts
    except msgspec.ValidationError as error:
        raise typer.BadParameter(str(error)) from error
    if locations.data is None:
        raise typer.BadParameter("name the --data directory to rebuild")
    with opened(locations.data, cells=locations.cells, accept_loss=True) as context:
        archive = FileBlobs(locations.archive)
        return rebuild(
            context, archive, gap=GAP if options.gap is None else options.gap, skip_damaged=options.skip_damaged
        )


class _RebuildOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    gap: int | None = None
    skip_damaged: bool = False


def _spark(
    job: str, locations: Locations, job_options: Mapping[str, str], master: str, output: Output
) -> Iterator[tuple[str, Any]]:
    """Returns an iterator that runs a job, or all daily jobs, and yields the name and report of each job as soon as it
    ends. Raises ``Missing`` without Spark, and ``Rejected`` for wrong options, before anything runs."""
    try:
        from hourwheel_pipeline.jobs import jobs_of, options_of, read_options
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
    from hourwheel_pipeline.jobs import read_options
    from hourwheel_pipeline.session import session

    now_ms = SystemClock().now_ms()
    options = read_options(jobs, texts, now_ms)
    scratch = None if locations.data is None else locations.data / "scratch"

    @cache  # a job that finds nothing to do starts no Spark; several jobs share one
    def start() -> "SparkSession":
        with output.aside(locations.data):
            return session(name, master=master, scratch=scratch)

    try:
        for chosen, job_choice in zip(jobs, options, strict=True):
            yield chosen.name, chosen.run(start, job_choice, now_ms)
    finally:
        if start.cache_info().currsize:
            start().stop()


def _status(locations: Locations, deep: bool) -> "Status":
    try:
        from hourwheel_pipeline.failures import in_one_sentence
        from hourwheel_pipeline.status import status_of
    except ModuleNotFoundError as error:
        raise _lacking(error) from error
    with in_one_sentence():
        return status_of(locations.archive, locations.lake, deep=deep)


def _lacking(error: ModuleNotFoundError) -> Missing:
    return Missing(f"the pipeline needs {error.name}: pip install 'hourwheel[pipeline]'")
