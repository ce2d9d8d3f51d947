"""Import-time ceiling: CPU milliseconds that importing an entry point costs, over those of a bare interpreter.

The least of several runs counts, so that a busy machine does not fail it. Ceilings leave room for slow machines:
they catch a heavy library that crept in, not a per cent.
"""

import subprocess
import sys

CEILINGS_MS = {
    "hourwheel.client": 220,
    "hourwheel.cell": 260,
    "hourwheel.api.produce": 400,
    "hourwheel.cli.main": 400,
}
FORBIDDEN = {
    "hourwheel.client": {"pydantic", "typer", "rich", "uvicorn", "boto3", "aws_lambda_powertools"},
    "hourwheel.cell": {"boto3", "uvicorn", "typer", "rich"},
    "hourwheel.api.produce": {"boto3", "uvicorn", "typer", "rich"},
    "hourwheel.cli.main": {"boto3", "uvicorn", "pydantic", "aws_lambda_powertools"},
}
RUNS = 5

_MEASURE = """
import sys, time
began = time.process_time()
if {module!r}:
    __import__({module!r})
print((time.process_time() - began) * 1000, *sorted(name for name in sys.modules if "." not in name))
"""


def measured(module: str) -> tuple[float, set[str]]:
    """The least CPU milliseconds of several runs, and the top-level modules that were loaded."""
    least, loaded = float("inf"), set()
    for _ in range(RUNS):
        answer = subprocess.run(
            [sys.executable, "-c", _MEASURE.format(module=module)], capture_output=True, text=True, check=True
        )
        cost, *names = answer.stdout.split()
        least, loaded = min(least, float(cost)), set(names)
    return least, loaded


def main() -> int:
    failed = False
    for module, ceiling in CEILINGS_MS.items():
        cost, loaded = measured(module)
        unwanted = sorted(loaded & FORBIDDEN[module])
        bad = cost > ceiling or bool(unwanted)
        failed |= bad
        loads = f", loads {', '.join(unwanted)}" if unwanted else ""
        print(f"{'FAIL' if bad else 'ok  '} import {module}: {cost:.0f} ms of CPU, ceiling {ceiling} ms{loads}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
