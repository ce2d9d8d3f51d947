"""``python -m hourwheel_pipeline JOB --archive … --lake …``: runs a job of the pipeline, or all that are done daily.

Each job's report is a line of JSON, what is damaged and why a job failed a line each on stderr. The exit status is that
of ``exits.py``.
"""

import argparse
import sys
import traceback
from collections.abc import Sequence
from functools import cache, partial

import msgspec

from hourwheel.adapters.system import SystemClock
from hourwheel.errors import HourwheelError
from hourwheel_pipeline.exits import of_error
from hourwheel_pipeline.jobs import DAILY, JOBS, jobs_of, options_of, read_options
from hourwheel_pipeline.metrics_upload import metrics_of, publish, without_failing
from hourwheel_pipeline.outcomes import damage_in, of_reports
from hourwheel_pipeline.session import session


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m hourwheel_pipeline", description=(__doc__ or "").split("\n")[0])
    commands = found.add_subparsers(dest="job", required=True, metavar="JOB")
    for name in (*JOBS, "daily"):
        jobs = jobs_of(name)
        about = ", ".join(DAILY) if name == "daily" else jobs[0].about
        command = commands.add_parser(
            name, help=about.split(":")[0].replace("%", "%%"), description=about, allow_abbrev=False
        )
        own = {option.name: option for option in options_of(jobs)}
        # The same arguments start any job: what another one has is taken, and left aside.
        for option in options_of([*jobs_of("daily"), *jobs]):
            flag, mine = f"--{option.name.replace('_', '-')}", own.get(option.name)
            text = argparse.SUPPRESS if mine is None else None
            required = mine is not None and mine.required
            command.add_argument(flag, dest=f"option {option.name}", required=required, metavar="…", help=text)
        command.add_argument("--cell", help="write metrics of this cell to CloudWatch Logs", metavar="NAME")
        command.add_argument("--traceback", action="store_true", help="show where in the code a job failed")
        command.add_argument("--master", help="Spark's, such as local[2]; not where it is submitted", metavar="URL")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    asked = vars(parser().parse_args(arguments))
    now_ms, jobs, reports = SystemClock().now_ms(), jobs_of(asked["job"]), []
    options = {option.name: asked[f"option {option.name}"] for option in options_of(jobs)}
    given = {name: text for name, text in options.items() if text is not None}
    try:
        every = read_options(jobs, given, now_ms)
        start = cache(partial(session, asked["job"], master=asked["master"]))
        if asked["master"] is None:
            start()  # the cluster that it was submitted to takes a program without a session for a failed one
        for job, wish in zip(jobs, every, strict=True):
            reports.append(job.run(start, wish, now_ms))
            sys.stdout.write(msgspec.json.encode({"job": job.name, "report": reports[-1]}).decode() + "\n")
            sys.stdout.flush()
            for sentence in damage_in(reports[-1]):
                sys.stderr.write(f"damaged: {sentence}\n")
    except HourwheelError as error:
        sys.stderr.write(traceback.format_exc() if asked["traceback"] else f"{error}\n")
        return of_error(error)
    finally:
        # Also where a later job failed: what the earlier ones found is true.
        if asked["cell"] is not None:
            where = {name: given.get(name) for name in ("region", "endpoint_url")}
            without_failing(lambda: publish(metrics_of(reports), asked["cell"], now_ms, **where))
    return of_reports(reports)


if __name__ == "__main__":
    sys.exit(main())
