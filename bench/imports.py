"""Import-time ceilings: CPU milliseconds that importing an entry point costs, over those of a bare interpreter.

Modules of the library are imported from the virtual environment; functions with their settings from the layers that are
deployed (``make layers`` makes them), as Lambda does. Only compiled packages are taken from the environment: those of
the layer are for arm64.

The least of several runs counts, so that a busy machine does not fail it, and byte code that the first run leaves, as
installed packages may have none. Ceilings leave room for slow machines: they catch a heavy library that crept in, not
a per cent.
"""

import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYERS = [ROOT / "build/layers" / name / "python" for name in ("hourwheel", "dependencies")]
FUNCTIONS = sorted(path.parent.name for path in ROOT.glob("functions/*/handler.py"))

CEILINGS_MS = {
    "hourwheel.client": 110,
    "hourwheel.cell": 130,
    "hourwheel.api.produce": 130,
    "hourwheel.cli.app": 200,
    "produce": 300,
    "pull": 300,
    "ack": 300,
}
CONTROL_CEILING_MS = 380
"""The ceiling of the other functions: their callers wait longer for other things than for an import."""

FORBIDDEN = {
    "hourwheel.client": {"pydantic", "typer", "rich", "uvloop", "botocore", "aws_lambda_powertools"},
    "hourwheel.cell": {"botocore", "uvloop", "typer", "rich"},
    "hourwheel.api.produce": {"botocore", "uvloop", "typer", "rich", "pydantic"},
    "hourwheel.cli.app": {"botocore", "uvloop", "pydantic", "aws_lambda_powertools"},
    "produce": {"boto3", "pydantic"},
    "pull": {"boto3", "pydantic"},
    "ack": {"boto3", "pydantic"},
}
RUNS = 7

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
began = time.process_time()
__import__({module!r})
print((time.process_time() - began) * 1000, *sorted(name for name in sys.modules if "." not in name))
"""


def measured(module: str, paths: Sequence[Path], options: Sequence[str], runs: int = RUNS) -> tuple[float, set[str]]:
    """Returns the least CPU milliseconds of several runs, and the top-level modules that were loaded."""
    code = _MEASURE.format(module=module, paths=[str(path) for path in paths])
    command = [sys.executable, "-I", "-X", f"pycache_prefix={ROOT / 'build/bytecode'}", *options, "-c", code]
    least, loaded = float("inf"), set()
    for _ in range(runs):
        answer = subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT)
        cost, *names = answer.stdout.split()
        least, loaded = min(least, float(cost)), set(names)
    return least, loaded


def measured_function(name: str, runs: int = RUNS) -> tuple[float, set[str]]:
    """Measures a function likewise, without the packages of this environment except the compiled ones."""
    with tempfile.TemporaryDirectory() as folder:
        for package in {path.relative_to(LAYERS[1]).parts[0] for path in LAYERS[1].rglob("*.so")}:
            Path(folder, package).symlink_to(Path(sysconfig.get_path("platlib"), package))
        return measured("handler", [Path(folder), *LAYERS, ROOT / "functions" / name], ["-S"], runs)


def main() -> int:
    failed = False
    modules = [name for name in CEILINGS_MS if name not in FUNCTIONS]
    for module in [*modules, *FUNCTIONS]:
        function = module in FUNCTIONS
        cost, loaded = measured_function(module) if function else measured(module, [], [])
        ceiling = CEILINGS_MS.get(module, CONTROL_CEILING_MS)
        unwanted = sorted(loaded & FORBIDDEN.get(module, {"boto3"}))
        bad = cost > ceiling or bool(unwanted)
        failed |= bad
        loads = f", loads {', '.join(unwanted)}" if unwanted else ""
        name = f"function {module}" if function else f"import {module}"
        print(f"{'FAIL' if bad else 'ok  '} {name}: {cost:.0f} ms of CPU, ceiling {ceiling} ms{loads}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
