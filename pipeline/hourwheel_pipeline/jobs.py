"""The jobs by name, and their options from text.

A job is a module of this package with ``run(spark, options)``; what ``options`` may be, its type says. Options of one
name mean the same in each job. Where it has ``idle(options)``, that is the report where nothing is to be done that
needs Spark, else None.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from typing import Any, get_type_hints

import msgspec
from pydantic import BaseModel, ValidationError
from pyspark.sql import SparkSession

from hourwheel.errors import Rejected
from hourwheel_pipeline.exits import OPTION_WRONG
from hourwheel_pipeline.failures import in_one_sentence

DAILY = ("compact", "reconcile", "metrics", "report", "maintain")
"""What is done each day, in this order: what looks after files comes last, so that it holds nothing up."""

JOBS = (*DAILY, "repair", "replay")

_NOW = "now_ms"


@dataclass(frozen=True)
class Option:
    """``required``: the job has no default for it."""

    name: str
    required: bool


@dataclass(frozen=True)
class Job:
    name: str

    @property
    def about(self) -> str:
        """What it does, in a paragraph."""
        text = import_module(f"{__package__}.{self.name}").__doc__ or ""
        return text.split("\n\n")[0]

    @property
    def options(self) -> list[Option]:
        kind = self._kind
        if issubclass(kind, BaseModel):
            found = [Option(name, field.is_required()) for name, field in kind.model_fields.items()]
        else:
            found = [Option(field.name, field.required) for field in msgspec.structs.fields(kind)]
        return [option for option in found if option.name != _NOW]

    def read(self, given: Mapping[str, str], now_ms: int) -> Any:
        """Its options; raises ``Rejected`` that names the one that is wrong, unknown or missing."""
        kind = self._kind
        try:
            if issubclass(kind, BaseModel):
                return kind.model_validate_strings(dict(given))
            now = {_NOW: now_ms} if _NOW in kind.__struct_fields__ else {}
            return msgspec.convert({**given, **now}, kind, strict=False)
        except ValidationError as error:
            first = error.errors()[0]
            raise _wrong(self.name, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
        except msgspec.ValidationError as error:
            raise _wrong(self.name, str(error)) from error

    def run(self, spark: Callable[[], SparkSession], options: Any, now_ms: int) -> Any:
        """Its report. Asks for ``spark`` only where it has something to do that needs it: a session takes seconds to
        start. Raises a ``HourwheelError``, also for what fails in a library."""
        module = import_module(f"{__package__}.{self.name}")
        with in_one_sentence():
            if (idle := getattr(module, "idle", None)) is not None:
                report = _call(idle, options=options, now_ms=now_ms)
                if report is not None:
                    return report
            needed = {"spark": spark()} if "spark" in signature(module.run).parameters else {}
            return _call(module.run, options=options, now_ms=now_ms, **needed)

    @property
    def _kind(self) -> Any:
        return get_type_hints(import_module(f"{__package__}.{self.name}").run)["options"]


def _call(job: Callable[..., Any], **given: Any) -> Any:
    """Calls it with what it takes of the given."""
    return job(**{name: value for name, value in given.items() if name in signature(job).parameters})


def jobs_of(name: str) -> list[Job]:
    """That job, or all that are done daily."""
    return [Job(one) for one in (DAILY if name == "daily" else (name,))]


def options_of(jobs: Sequence[Job]) -> list[Option]:
    """Of all these jobs together."""
    found: dict[str, Option] = {}
    for option in (option for job in jobs for option in job.options):
        known = found.get(option.name)
        found[option.name] = Option(option.name, option.required or (known is not None and known.required))
    return list(found.values())


def read_options(jobs: Sequence[Job], given: Mapping[str, str], now_ms: int) -> list[Any]:
    """The options of each job: those of the given that it has. Raises ``Rejected``, also for one that none has."""
    unknown = given.keys() - {option.name for option in options_of(jobs)}
    if unknown:
        raise _wrong(" ".join(job.name for job in jobs), f"there is no option {sorted(unknown)[0]}")
    return [
        job.read({option.name: given[option.name] for option in job.options if option.name in given}, now_ms)
        for job in jobs
    ]


def _wrong(job: str, text: str) -> Rejected:
    return Rejected(OPTION_WRONG, f"options of {job}: {text}")
