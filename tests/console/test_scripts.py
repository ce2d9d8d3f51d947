"""The parts of the console's scripts that need no browser, run by Node."""

import os
import shutil
import subprocess
from pathlib import Path

STATIC = Path(__file__).parents[2] / "layers/hourwheel/python/hourwheel/console/static"
SCRIPTS = Path(__file__).parent / "scripts"


def test_the_scripts_pass_their_tests(tmp_path: Path) -> None:
    shutil.copytree(STATIC, tmp_path / "static")
    shutil.copytree(SCRIPTS, tmp_path / "tests")
    # Node takes a file that ends in .js for a module only if a package says so.
    (tmp_path / "package.json").write_text('{"type": "module"}')
    tests = sorted(map(str, (tmp_path / "tests").glob("*.test.js")))
    assert tests
    environment = {**os.environ, "TZ": "Europe/Berlin"}
    run = subprocess.run(
        ["node", "--test", "--test-reporter=tap", *tests],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stdout + run.stderr
