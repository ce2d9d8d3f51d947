"""Starts a job of the package beside it: the program that EMR Serverless runs.

The program first checks that the interpreter is the version for which ``pipeline/build.py`` packs: in another one the
compiled modules fail to import, with errors that do not name the reason. Any Python from 3.6 on can read this file.

EMR knows only success and failure. A job that did its work has succeeded, whatever it found: findings and damage have
alarms of their own.
"""

import sys

PYTHON = (3, 11)


def wrong_interpreter(version):  # type: ignore[no-untyped-def] # an old Python must be able to read it
    """Returns why a job cannot run in an interpreter of this version; None if it can."""
    if tuple(version[:2]) == PYTHON:
        return None
    packed, running = (".".join(map(str, numbers)) for numbers in (PYTHON, version[:2]))
    return (
        f"the package of the jobs is for Python {packed}, and this release runs {running}: choose another one with"
        " hourwheel:pipeline_release, or pack for this one (PYTHON in pipeline/build.py and infra/pipeline.py)"
    )


if __name__ == "__main__":
    reason = wrong_interpreter(sys.version_info)
    if reason is not None:
        sys.exit(reason)

    from hourwheel_pipeline.__main__ import main
    from hourwheel_pipeline.outcomes.report_status import failed

    sys.exit(failed(main()))
