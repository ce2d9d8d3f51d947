"""The fixture of pytest: each test gets a queue of its own, and a run without it pays nothing."""

import subprocess
import sys
import tomllib
from pathlib import Path

from tests.docs.pages import ROOT, examples

PLUGIN = "hourwheel.testing.plugin"


def run(folder: Path, code: str) -> str:
    (folder / "test_it.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", PLUGIN, "-p", "no:schemathesis", "--rootdir", str(folder)]
    answer = subprocess.run([*command, str(folder / "test_it.py")], capture_output=True, text=True, cwd=folder)
    assert answer.returncode == 0, answer.stdout
    return answer.stdout


def test_the_plugin_is_an_entry_point_of_pytest_by_the_name_of_its_module() -> None:
    """By another name pytest would load it twice where a project names it in ``pytest_plugins``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}


def test_each_test_gets_a_queue_of_its_own(tmp_path: Path) -> None:
    test = "def test_{}(hourwheel_queue):\n    hourwheel_queue.assert_nothing_sent('orders')\n"
    test += "    assert hourwheel_queue.producer('orders').send('paid').result().offset == 0\n"
    assert "2 passed" in run(tmp_path, test.format("one") + test.format("two"))


def test_a_run_that_does_not_use_the_fixture_does_not_load_the_queue(tmp_path: Path) -> None:
    unused = "{'hourwheel.deployment.deployment', 'hourwheel.client'}"
    code = f"import sys\ndef test_it():\n    assert {unused}.isdisjoint(sys.modules)\n"
    assert "1 passed" in run(tmp_path, code)


def test_the_examples_of_the_page_about_testing_pass(tmp_path: Path) -> None:
    blocks = examples(ROOT / "docs/testing.md", "python")
    assert f"{''.join(blocks).count('def test_')} passed" in run(tmp_path, "\n".join(blocks))
