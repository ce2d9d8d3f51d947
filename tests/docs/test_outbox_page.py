"""The examples of docs/outbox.md: the first one runs as it is written, but for the port; the others are Python."""

import ast
import subprocess
import textwrap
from pathlib import Path

from tests.docs.pages import ROOT, examples
from tests.docs.test_examples import python
from tests.integration.process import Server, bodies, pull

PAGE = ROOT / "docs/outbox.md"


def test_the_example_sends_what_it_has_committed(server: Server, tmp_path: Path) -> None:
    (code,) = examples(PAGE, "python")
    done = subprocess.run(python(code, server.port), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("2\n", "")
    assert bodies(pull(server)) == ['{"order":1}']


def test_the_snippet_of_sqlalchemy_is_python() -> None:
    (alchemy,) = examples(PAGE, "py")
    ast.parse(f"async def f():\n{textwrap.indent(alchemy, '    ')}")
