"""A walk through a page finds what a reader would stumble over."""

from pathlib import Path

import pytest

from tests.docs.terminals import matches
from tests.docs.walks import walked

SHOP = "```python\n# shop.py\nprint('order 7 at 2026-11-28 14:16:27Z')\n```\n\n"


def walk(folder: Path, text: str) -> None:
    page = folder / "page.md"
    page.write_text(text)
    with walked(page, folder):
        pass


def block(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```\n\n"


def test_a_page_that_shows_what_is_printed_passes(tmp_path: Path) -> None:
    installed = block("sh", "python3 -m venv venv\n. venv/bin/activate\npip install ~/hourwheel")
    shown = block("text", "order 7 at 2020-01-01 00:00:00Z")
    walk(tmp_path, installed + SHOP + block("sh", "python shop.py") + shown + block("sh", "true"))


@pytest.mark.parametrize(
    "text",
    [
        block("sh", "python shop.py") + block("text", "order 8 at 2026-11-28 14:16:27Z"),
        block("sh", "python shop.py"),
        block("sh", "python shop.py") + block("text", "order 7 at 2026-11-28 14:16:27Z\nand more"),
        block("sh", "false"),
        block("sh", "false") + block("sh", "true"),
        block("sh server", "python shop.py") + block("text server", "order 8 …"),
        block("python", "print('a file without a name')"),
    ],
    ids=[
        "another output",
        "an output not shown",
        "too little",
        "a failure",
        "an earlier failure",
        "a server",
        "unnamed",
    ],
)
def test_a_page_that_shows_something_else_fails(text: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        walk(tmp_path, SHOP + text)


def test_ctrl_c_ends_a_program_that_goes_on(tmp_path: Path) -> None:
    code = "import signal, threading\nsignal.signal(signal.SIGINT, lambda *_: done.set())\n"
    code += "done = threading.Event()\nprint('begun')\ndone.wait()\nprint('stopped')"
    text = block("python", f"# wait.py\n{code}") + block("sh", "python wait.py")
    walk(tmp_path, text + block("text", "begun\n^C\nstopped"))


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("one\n…\nthree\n", "one\ntwo\ntwo and a half\nthree\n"),
        ("one\n…\n", "one\n"),
        ("failed: …\n", "failed: for a reason\n"),
        (" a   b\n ───\n", "\x1b[1ma b\x1b[0m  \r\n ──────── \r\n\r\n"),
        ("at 2026-11-28 14:16:27Z\n", "at 2027-01-01T10:00:00.125Z\n"),
        ("sent 01a22283b70aed28e8587734e91a-0\n", "sent 01a22283b6f1acf5a4d82ce69372-12\n"),
    ],
)
def test_what_a_page_may_show(shown: str, printed: str) -> None:
    assert matches(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [("one\n", "one\ntwo\n"), ("one\n…\nthree\n", "one\nfour\n"), ("2 dead\n", "3 dead\n"), ("a.c\n", "abc\n")],
)
def test_what_a_page_may_not_show(shown: str, printed: str) -> None:
    assert not matches(shown, printed)
