"""Measures the cost of importing an entry point: the modules that it loads, which have a ceiling, and CPU milliseconds.

Modules of the library are imported from the virtual environment; functions with their settings from the layers that are
deployed (``make layers`` makes them), as Lambda does. Only compiled packages are taken from the environment: those of
the layer are for arm64.

Only the number of modules can fail the run, because it is the same on every machine: a ceiling leaves room for a tenth
more, and catches a heavy library that crept in. The milliseconds are the least of several runs, less those of a bare
interpreter. The first run writes byte code, which installed packages may lack; the least run has it.
"""

import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYERS = [ROOT / "build/layers" / name / "python" for name in ("hourwheel", "dependencies")]
FUNCTIONS = sorted(path.parent.name for path in ROOT.glob("functions/*/handler.py"))

MOST_MODULES = {
    "hourwheel.client": 210,
    "hourwheel.deployment.deployment": 301,
    "hourwheel.api.produce": 315,
    "hourwheel.cli.app": 315,
    "produce": 607,
    "pull": 607,
    "ack": 607,
}
MOST_CONTROL_MODULES = 621
"""The ceiling of the other functions: their callers wait longer for other things than for an import."""

FORBIDDEN = {
    "hourwheel.client": {"pydantic", "typer", "rich", "uvloop", "botocore", "aws_lambda_powertools"},
    "hourwheel.deployment.deployment": {"botocore", "uvloop", "typer", "rich"},
    "hourwheel.api.produce": {"botocore", "uvloop", "typer", "rich", "pydantic"},
    "hourwheel.cli.app": {"botocore", "uvloop", "pydantic", "aws_lambda_powertools"},
    "produce": {"boto3", "pydantic"},
    "pull": {"boto3", "pydantic"},
    "ack": {"boto3", "pydantic"},
}
RUNS = 3

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "AWS_DEFAULT_REGION": "us-east-1",
    "HOURWHEEL_TABLE_PREFIX": "hourwheel",
    "HOURWHEEL_BUCKET": "hourwheel-batches",
    "HOURWHEEL_LAKE_BUCKET": "hourwheel-lake",
    "HOURWHEEL_WHEEL_FUNCTION": "arn:aws:lambda:us-east-1:123456789012:function:hourwheel-wheel",
    "HOURWHEEL_PUSH_FUNCTION": "arn:aws:lambda:us-east-1:123456789012:function:hourwheel-push",
    "HOURWHEEL_TIMER_GROUP": "hourwheel",
    "HOURWHEEL_TIMER_ROLE": "arn:aws:iam::123456789012:role/hourwheel-timers",
}

_MEASURE = """
import sys, time
sys.path[:0] = {paths!r}
before = set(sys.modules)
began = time.process_time()
__import__({module!r})
print((time.process_time() - began) * 1000, *sorted(set(sys.modules) - before))
"""


def measured(module: str, paths: Sequence[Path], options: Sequence[str], runs: int = RUNS) -> tuple[float, set[str]]:
    """Returns the least CPU milliseconds of several runs, and the names of the modules that were loaded."""
    code = _MEASURE.format(module=module, paths=[str(path) for path in paths])
    command = [sys.executable, "-I", "-X", f"pycache_prefix={_bytecode()}", *options, "-c", code]
    least, loaded = float("inf"), set()
    for _ in range(runs):
        answer = subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT)
        cost, *names = answer.stdout.split()
        least, loaded = min(least, float(cost)), set(names)
    return least, loaded


@cache
def _bytecode() -> Path:
    """Returns a folder for bytecode that is empty at first: the files of a layer have the same time whatever their
    content, so Python would take the bytecode of an earlier layer for theirs."""
    folder = ROOT / "build/bytecode"
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def measured_function(name: str, runs: int = RUNS) -> tuple[float, set[str]]:
    """Measures a function likewise, without the packages of this environment except the compiled ones."""
    with tempfile.TemporaryDirectory() as folder:
        for package in {path.relative_to(LAYERS[1]).parts[0] for path in LAYERS[1].rglob("*.so")}:
            Path(folder, package).symlink_to(Path(sysconfig.get_path("platlib"), package))
        return measured("handler", [Path(folder), *LAYERS, ROOT / "functions" / name], ["-S"], runs)


def main() -> int:
    failed = False
    modules = [name for name in MOST_MODULES if name not in FUNCTIONS]
    for module in [*modules, *FUNCTIONS]:
        function = module in FUNCTIONS
        cost, loaded = measured_function(module) if function else measured(module, [], [])
        most = MOST_MODULES.get(module, MOST_CONTROL_MODULES)
        unwanted = sorted(loaded & FORBIDDEN.get(module, {"boto3", "pydantic"}))
        bad = len(loaded) > most or bool(unwanted)
        failed |= bad
        loads = f", loads {', '.join(unwanted)}" if unwanted else ""
        subject = f"function {module}" if function else f"import {module}"
        result = f"{len(loaded)} modules of at most {most}, {cost:.0f} ms of CPU{loads}"
        print(f"{'FAIL' if bad else 'ok  '} {subject}: {result}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
