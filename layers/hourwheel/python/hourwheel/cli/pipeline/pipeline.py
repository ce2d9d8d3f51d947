"""``hourwheel pipeline``: runs the jobs of the pipeline, and shows their state, on this machine or on AWS."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from hourwheel.cli.messages.messages import write_traces
from hourwheel.cli.output import write_fields, write_json, write_line, write_table
from hourwheel.cli.pipeline.exits import end, end_with, errors_as_sentences
from hourwheel.cli.pipeline.job_options import job_of
from hourwheel.cli.pipeline.jobs import (
    ARCHIVE,
    DAILY,
    REBUILD,
    TRACE,
    archive_logs,
    lake_status_of,
    rebuild_store,
    spark_reports,
)
from hourwheel.cli.pipeline.locations import Locations, Missing, locations_of
from hourwheel.cli.pipeline.output import Output
from hourwheel.cli.server.serve_options import CellOption, directories_of
from hourwheel.cli.settings import settings_of
from hourwheel.client import TracePage
from hourwheel.errors import HourwheelError

# The extra ``pipeline`` alone installs these packages: the functions below import them.
if TYPE_CHECKING:
    from hourwheel.cli.pipeline.deployed import Deployed
    from hourwheel_pipeline.jobs.status import Status

_EXITS = "Exit status: 0 all is well; 1 a job failed; 2 wrong usage; 3 findings; 4 the archive or the lake is damaged."

app = typer.Typer(no_args_is_help=True, help="Archive the logs, and work with the archive in Spark.", epilog=_EXITS)

_FREE = {"ignore_unknown_options": True}  # the jobs have options of their own, which Spark's side parses

DataOption = Annotated[Path | None, typer.Option(help="Data directory of a server, with its archive and lake.")]
ArchiveOption = Annotated[str | None, typer.Option(help="The archive, if elsewhere: a folder or s3://bucket/prefix.")]
LakeOption = Annotated[str | None, typer.Option(help="The lake, if elsewhere: a folder or s3://bucket/prefix.")]
StackOption = Annotated[str | None, typer.Option(help="The CloudFormation stack of a cell on AWS, instead of --data.")]
VerboseOption = Annotated[
    bool, typer.Option("--verbose", help="Print Spark's own output, instead of writing it to a file.")
]
TracebackOption = Annotated[bool, typer.Option("--traceback", help="Show where in the code a command failed.")]


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
    job, job_options = job_of(ctx, words or [])
    if stack is not None:
        _start(ctx, stack, job, job_options)
        return
    locations = msgspec.structs.replace(locations_of(data, archive, lake), cells=directories_of(cell or []))
    _check_directory(job, data, archive)
    output = Output(settings_of(ctx).json, verbose)
    with errors_as_sentences(traceback) as say_why:
        if job == REBUILD:
            _rebuild(locations, job_options, output)
        elif job == ARCHIVE:
            end([], _archive(locations, output))
        else:
            # Made before anything is archived: a missing package, or a wrong option, ends the run without effect.
            jobs = spark_reports(job, locations, job_options, master, output)
            _run_spark(job, jobs, locations, output, say_why)


def _start(ctx: typer.Context, stack: str, job: str, job_options: dict[str, str]) -> None:
    """Starts a job on AWS."""
    if job == TRACE:
        raise typer.BadParameter("trace reads the lake here: name --archive and --lake, as pipeline status shows them")
    write_json({"job": job, "started": _deployed(ctx, stack).start(job, job_options)})


def _check_directory(job: str, data: Path | None, archive: str | None) -> None:
    """Raises ``typer.BadParameter`` for a job that this directory and archive are not for."""
    if data is None:
        if job == ARCHIVE:
            raise typer.BadParameter("name the --data directory whose logs are to be archived")
        return
    if data.exists():
        from hourwheel.embedded.directories.ownership import check_directory

        check_directory(data)
    if archive is not None and job in (ARCHIVE, DAILY):
        raise typer.BadParameter(f"the logs of {data} are archived in it: --archive is for jobs that read")


def _rebuild(locations: Locations, job_options: Mapping[str, str], output: Output) -> None:
    rebuilt = rebuild_store(locations, job_options)
    output.write(REBUILD, rebuilt)
    left_out = [*rebuilt.lost_manifests, *rebuilt.unreadable_segments]
    end(left_out, 4 if left_out else 0)


def _archive(locations: Locations, output: Output) -> int:
    """Archives the logs of the data directory, if there is one. Returns the exit status."""
    if locations.data is None:
        return 0
    archived = archive_logs(locations.data, Path(locations.archive), locations.cells)
    output.write(ARCHIVE, archived)
    return 0 if archived.complete or archived.cells_out else 1  # the log above names the errors


def _run_spark(
    job: str, jobs: Iterable[tuple[str, Any]], locations: Locations, output: Output, say_why: Callable[[Exception], int]
) -> None:
    """Runs the jobs, after the archiver for the daily ones. A job that fails says so, and the others run all the
    same."""
    reports, statuses = [], []
    if job == DAILY:
        try:
            statuses.append(_archive(locations, output))
        except HourwheelError as error:
            statuses.append(say_why(error))
    for name, report in jobs:
        if isinstance(report, HourwheelError):
            statuses.append(say_why(report))
            continue
        output.write(name, report)
        reports.append(report)
        if job == TRACE and not output.json:
            write_traces(msgspec.convert(msgspec.to_builtins(report), TracePage).messages)
    end_with(reports, statuses)


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
        deployed = _deployed(ctx, stack)
        runs = deployed.runs()
        if settings_of(ctx).json:
            write_json({"archive": deployed.archive, "lake": deployed.lake, "runs": runs})
        else:
            write_line(f"archive {deployed.archive}, lake {deployed.lake}, tables in {deployed.database}")
            write_table(["run", "job", "state", "since", "detail"], [tuple(run.values()) for run in runs])
        return
    locations = locations_of(data, archive, lake)
    with errors_as_sentences(traceback):
        lake_status = lake_status_of(locations, deep)
        _show(ctx, lake_status, data)
        end_with([lake_status])


def _show(ctx: typer.Context, status: "Status", data: Path | None) -> None:
    from hourwheel_pipeline.runs.words import counted, found_words

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
        write_line(_deployed(ctx, stack).report)
        return
    folder = Path(locations_of(data, lake, lake).report)
    if not (folder / "report.json").exists():
        raise Missing(f"there is no report in {folder}: run hourwheel pipeline run first")
    encoded = (folder / "report.json").read_bytes()
    if settings_of(ctx).json:
        write_json(msgspec.json.decode(encoded))
        return
    from hourwheel_pipeline.runs.words import found_words

    counts = (msgspec.json.decode(encoded)["reconciled"] or {}).get("counts")
    write_line("never reconciled" if counts is None else found_words(counts))
    write_line(str(folder / "report.html"))


def _deployed(ctx: typer.Context, stack: str) -> "Deployed":
    from hourwheel.cli.pipeline.deployed import Deployed  # only commands with --stack need it

    return Deployed.of(stack, settings_of(ctx).region)
