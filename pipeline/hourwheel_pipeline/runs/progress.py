"""Shows the progress of a job to a person who waits at a terminal."""

import sys


def stage(job: str, text: str) -> None:
    """Writes a line about the stage of the job that begins now to standard error. Writes nothing if standard error is
    no terminal: a file or a pipe gets only errors."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{job}: {text}\n")
        sys.stderr.flush()
