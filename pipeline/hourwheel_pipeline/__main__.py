"""``python -m hourwheel_pipeline JOB --archive … --lake …``: runs a job of the pipeline, or all daily jobs.

Prints the report of each job as a line of JSON, and on stderr a line for each damaged object and for the reason why a
job failed. The daily jobs after one that failed run all the same. Ends with an exit status of ``runs/exits.py``.
"""

import argparse
import sys
import traceback
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import msgspec

from hourwheel.errors import HourwheelError
from hourwheel.system import SystemClock
from hourwheel_pipeline.jobs.job_names import DAILY, JOBS, jobs_of, options_of, read_options, reports_of
from hourwheel_pipeline.outcomes.metrics_upload import metrics_of, publish, without_failing
from hourwheel_pipeline.outcomes.report_status import damage_in, of_reports
from hourwheel_pipeline.runs.exits import of_error, worst_of
from hourwheel_pipeline.runs.session import session


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(prog="python -m hourwheel_pipeline", description=(__doc__ or "").split("\n")[0])
    commands = root.add_subparsers(dest="job", required=True, metavar="JOB")
    for name in (*JOBS, "daily"):
        jobs = jobs_of(name)
        about = ", ".join(DAILY) if name == "daily" else jobs[0].about
        command = commands.add_parser(
            name, help=about.split(":")[0].replace("%", "%%"), description=about, allow_abbrev=False
        )
        own = {option.name: option for option in options_of(jobs)}
        # Each job accepts the options of all daily jobs, and ignores those of others: one list of arguments starts any.
        for option in options_of([*jobs_of("daily"), *jobs]):
            flag, read = f"--{option.name.replace('_', '-')}", own.get(option.name)
            text = argparse.SUPPRESS if read is None else None
            required = read is not None and read.required
            command.add_argument(flag, dest=f"option {option.name}", required=required, metavar="…", help=text)
        command.add_argument("--cell", help="the cell whose metrics go to CloudWatch Logs", metavar="NAME")
        command.add_argument("--traceback", action="store_true", help="show where in the code a job failed")
        command.add_argument(
            "--master", help="the Spark master, such as local[2]; leave it away with spark-submit", metavar="URL"
        )
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = vars(parser().parse_args(arguments))
    now_ms, jobs, reports = SystemClock().now_ms(), jobs_of(parsed["job"]), []
    options = {option.name: parsed[f"option {option.name}"] for option in options_of(jobs)}
    values = {name: text for name, text in options.items() if text is not None}
    statuses: list[int] = []
    try:
        all_options = read_options(jobs, values, now_ms)
        start = cache(partial(session, parsed["job"], master=parsed["master"]))
        if parsed["master"] is None:
            start()  # a cluster counts a submitted program that starts no session as failed
        for job, report in reports_of(jobs, all_options, start, now_ms):
            if isinstance(report, HourwheelError):
                statuses.append(_failed(report, parsed["traceback"]))
                continue
            reports.append(report)
            _write(job.name, report)
    except HourwheelError as error:
        statuses.append(_failed(error, parsed["traceback"]))
    finally:
        # Also after a failure: the metrics of the jobs before it are true.
        if parsed["cell"] is not None:
            where = {name: values.get(name) for name in ("region", "endpoint_url")}
            without_failing(lambda: publish(metrics_of(reports), parsed["cell"], now_ms, **where))
    return worst_of([*statuses, of_reports(reports)])


def _failed(error: HourwheelError, traced: bool) -> int:
    """Says why a job failed. Returns the exit status."""
    sys.stderr.write("".join(traceback.format_exception(error)) if traced else f"{error}\n")
    return of_error(error)


def _write(job: str, report: Any) -> None:
    sys.stdout.write(msgspec.json.encode({"job": job, "report": report}).decode() + "\n")
    sys.stdout.flush()
    for sentence in damage_in(report):
        sys.stderr.write(f"damaged: {sentence}\n")


if __name__ == "__main__":
    sys.exit(main())
