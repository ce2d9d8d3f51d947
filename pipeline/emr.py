"""What EMR Serverless is told to run: the package is beside it, and this names what to run of it.

It looks first whether the interpreter is the one for which ``pipeline/build.py`` packs: in another one the compiled
modules would fail to import one by one, with errors that say nothing of the reason. Any Python from 3.6 on can read
this file.

EMR knows only success and failure. A job that did its work and found something succeeded: findings and damage have
alarms of their own.
"""

import sys

PYTHON = (3, 11)


def wrong_interpreter(version):  # type: ignore[no-untyped-def] # the less, the older the Python that reads it
    """Why a job cannot run in an interpreter of this version; None where it can."""
    if tuple(version[:2]) == PYTHON:
        return None
    packed, found = (".".join(map(str, one)) for one in (PYTHON, version[:2]))
    return (
        f"the package of the jobs is for Python {packed}, and this release runs {found}: choose another one with"
        " hourwheel:pipeline_release, or pack for this one (PYTHON in pipeline/build.py and infra/pipeline.py)"
    )


if __name__ == "__main__":
    reason = wrong_interpreter(sys.version_info)
    if reason is not None:
        sys.exit(reason)

    from hourwheel_pipeline.__main__ import main
    from hourwheel_pipeline.outcomes import failed

    sys.exit(failed(main()))
