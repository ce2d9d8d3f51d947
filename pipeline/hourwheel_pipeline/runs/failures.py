"""Turns errors of Spark, Arrow, Iceberg and the catalog into errors of this library, each a sentence without stack
frames."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyiceberg.exceptions import NoSuchTableError, RESTError
from pyspark.errors import PySparkException
from sqlalchemy.exc import SQLAlchemyError

from hourwheel.errors import Broken, Corrupt, HourwheelError
from hourwheel_pipeline.runs.exits import DamagedLake

_DATA_FILE = re.compile(r"(?:(?:file|s3a?)://?/?)?/?[^\s'\"(),\[\]]+\.parquet\b")
_METADATA_FILE = re.compile(r"[^\s'\"(),\[\]]+\.(?:avro|metadata\.json)\b")
_RAISED = re.compile(r"^(?:[a-z_]\w*\.)+(?P<name>[A-Z]\w*): (?P<text>.+)$", re.MULTILINE)
_UNREADABLE = ("FAILED_READ_FILE", "CANNOT_READ_FILE", "is not a Parquet file", "ParquetDecodingException")
REPAIR = "hourwheel pipeline run repair restores its rows from the archive"
# Longer sentences of libraries are cut off: the rest is of use only in a traceback.
_LENGTH = 400


class JobFailed(Broken):
    """A job failed in a library that it uses; the message is the sentence of that library."""


@contextmanager
def in_one_sentence() -> Iterator[None]:
    """Raises a ``HourwheelError`` in place of an error of a library."""
    try:
        yield
    except HourwheelError:
        raise
    except (PySparkException, Py4JError, pa.ArrowException, SQLAlchemyError, OSError, NoSuchTableError, RESTError) as e:
        raise translated(e) from e


def translated(error: BaseException) -> HourwheelError:
    """Returns the error of a library as a ``HourwheelError``."""
    text = _text(error)
    file = _DATA_FILE.search(text)
    if file is not None and (_damages(error) or any(sign in text for sign in _UNREADABLE)):
        return DamagedLake(f"{_plain(file[0])} of the lake is missing or damaged: {REPAIR}")
    metadata = _METADATA_FILE.search(text)
    if metadata is not None and isinstance(error, OSError):
        return DamagedLake(
            f"{_plain(metadata[0])}, which describes a table of the lake, is missing or damaged: put it back from a"
            " copy, or compact the archive into another lake"
        )
    if isinstance(error, SQLAlchemyError):
        return JobFailed(
            f"the catalog of the lake cannot be used: {_first(str(getattr(error, 'orig', None) or error))}"
        )
    raised = list(_RAISED.finditer(text))
    if raised:
        kind = Corrupt if raised[-1]["name"] in ("Corrupt", "UnreadableSegment", "UnreadableSegments") else JobFailed
        return kind(raised[-1]["text"])
    return JobFailed(_first(text) or type(error).__name__)


def _text(error: BaseException) -> str:
    """Returns the text of an error; for an error that Java raised, the text of the Java exception with its cause."""
    if isinstance(error, Py4JError):
        return str(getattr(error, "java_exception", None) or error)
    return str(error)


def _damages(error: BaseException) -> bool:
    return isinstance(error, OSError | pa.ArrowException)


def _plain(path: str) -> str:
    return re.sub(r"^file:/+", "/", path)


def _first(text: str) -> str:
    """Returns the first line of the text, without the name of a class before it and the code of SQL after it. Cuts it
    off at ``_LENGTH``."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    line = re.sub(r"^(?:[a-z_]\w*\.)+[A-Z]\w*: ", "", line)
    return re.sub(r"\s*SQLSTATE: \w+$", "", line)[:_LENGTH]
