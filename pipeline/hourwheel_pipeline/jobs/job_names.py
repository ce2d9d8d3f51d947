"""Finds jobs by their names, and reads their options from text.

A job is a module of this package with ``run(spark, options)``; the type of ``options`` defines its options. Options of
one name mean the same in each job. A job may also have ``idle(options)``, which does the work and returns the report if
nothing needs Spark, and otherwise returns None.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from typing import Any, get_type_hints

import msgspec
from pydantic import BaseModel, ValidationError
from pyspark.sql import SparkSession

from hourwheel.errors import HourwheelError, Rejected
from hourwheel.retention.archive_format import check_archive
from hourwheel_pipeline.runs.exits import OPTION_WRONG
from hourwheel_pipeline.runs.failures import in_one_sentence
from hourwheel_pipeline.runs.option_faults import sentences_of

DAILY = ("compact", "reconcile", "metrics", "report", "maintain")
"""The daily jobs, in their order: ``maintain`` comes last, so that no other job waits for it."""

JOBS = (*DAILY, "repair", "replay", "trace")

_NOW = "now_ms"


@dataclass(frozen=True)
class Option:
    """An option of a job. ``required``: the job has no default for it."""

    name: str
    required: bool


@dataclass(frozen=True)
class Job:
    name: str

    @property
    def about(self) -> str:
        """Returns the first paragraph of the job's module, which describes the job."""
        text = import_module(f"{__package__}.{self.name}").__doc__ or ""
        return text.split("\n\n")[0]

    @property
    def options(self) -> list[Option]:
        kind = self._kind
        if issubclass(kind, BaseModel):
            options = [Option(name, field.is_required()) for name, field in kind.model_fields.items()]
        else:
            options = [Option(field.name, field.required) for field in msgspec.structs.fields(kind)]
        return [option for option in options if option.name != _NOW]

    def read(self, texts: Mapping[str, str], now_ms: int) -> Any:
        """Returns the options of the job. Raises ``Rejected``, which names an option that is wrong, unknown or
        missing."""
        kind = self._kind
        try:
            if issubclass(kind, BaseModel):
                return kind.model_validate_strings(dict(texts))
            now = {_NOW: now_ms} if _NOW in kind.__struct_fields__ else {}
            return msgspec.convert({**texts, **now}, kind, strict=False)
        except ValidationError as error:
            raise _wrong(self.name, sentences_of(kind, error)[0]) from error
        except msgspec.ValidationError as error:
            raise _wrong(self.name, str(error)) from error

    def run(self, spark: Callable[[], SparkSession], options: Any, now_ms: int) -> Any:
        """Runs the job and returns its report. Calls ``spark`` only if the job needs a session, which takes seconds to
        start. Raises a ``HourwheelError``, also for an error of a library, and for an archive that this version must
        not use."""
        module = import_module(f"{__package__}.{self.name}")
        with in_one_sentence():
            if (open_archive := getattr(options, "open_archive", None)) is not None:
                check_archive(open_archive())
            if (idle := getattr(module, "idle", None)) is not None:
                report = _call(idle, options=options, now_ms=now_ms)
                if report is not None:
                    return report
            session = {"spark": spark()} if "spark" in signature(module.run).parameters else {}
            return _call(module.run, options=options, now_ms=now_ms, **session)

    @property
    def _kind(self) -> Any:
        return get_type_hints(import_module(f"{__package__}.{self.name}").run)["options"]


def reports_of(
    jobs: Sequence[Job], options: Sequence[Any], spark: Callable[[], SparkSession], now_ms: int
) -> Iterator[tuple[Job, Any]]:
    """Runs the jobs, and yields each with its report as soon as it ends. For a job that fails, yields its
    ``HourwheelError`` instead; the jobs after it run all the same."""
    for job, job_options in zip(jobs, options, strict=True):
        try:
            report = job.run(spark, job_options, now_ms)
        except HourwheelError as error:
            report = error
        yield job, report


def _call(job: Callable[..., Any], **arguments: Any) -> Any:
    """Calls the function with the arguments for which it has parameters."""
    return job(**{name: value for name, value in arguments.items() if name in signature(job).parameters})


def jobs_of(name: str) -> list[Job]:
    """Returns the job of that name, or all daily jobs for ``daily``."""
    return [Job(job) for job in (DAILY if name == "daily" else (name,))]


def options_of(jobs: Sequence[Job]) -> list[Option]:
    """Returns the options of these jobs, each name once; an option is required if one of the jobs requires it."""
    by_name: dict[str, Option] = {}
    for option in (option for job in jobs for option in job.options):
        earlier = by_name.get(option.name)
        by_name[option.name] = Option(option.name, option.required or (earlier is not None and earlier.required))
    return list(by_name.values())


def read_options(jobs: Sequence[Job], texts: Mapping[str, str], now_ms: int) -> list[Any]:
    """Returns the options of each job, read from ``texts``, which may have options of all the jobs. Raises
    ``Rejected`` for an option that is wrong, missing, or that no job has."""
    unknown = texts.keys() - {option.name for option in options_of(jobs)}
    if unknown:
        raise _wrong(" ".join(job.name for job in jobs), f"there is no option {sorted(unknown)[0]}")
    return [
        job.read({option.name: texts[option.name] for option in job.options if option.name in texts}, now_ms)
        for job in jobs
    ]


def _wrong(job: str, text: str) -> Rejected:
    return Rejected(OPTION_WRONG, f"options of {job}: {text}")
