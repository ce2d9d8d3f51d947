"""The log of the server is safe to watch on a terminal."""

import json
import logging
import sys
from contextlib import closing
from pathlib import Path

import pytest

from hourwheel.embedded.options import ServeOptions
from hourwheel.embedded.runtime import Runtime
from hourwheel.errors import Broken


def test_a_line_of_the_log_has_nothing_that_a_terminal_would_obey(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evil = "\x1b]0;x\x07\x9b31m\u202e\u2028\n{}"
    with closing(Runtime(ServeOptions(data=tmp_path / "data"))) as runtime:
        for handler in logging.getLogger("hourwheel").handlers:
            assert isinstance(handler, logging.StreamHandler)
            handler.setStream(sys.stderr)  # that of the first runtime of this process, which another test opened
        runtime.boundary.report(Broken(evil), "reading failed")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["reason"] == evil
