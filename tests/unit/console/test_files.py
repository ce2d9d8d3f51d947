"""The files of the console are complete, refer to each other alone, and are sent with the right headers."""

import gzip
import re
from pathlib import Path

import pytest

from hourwheel.console import files
from hourwheel.console.files import contents, file_answer

STATIC = Path(files.__file__).parent / "static"
MOST_BYTES = 150_000
_IMPORT = re.compile(r"""(?:from|import)\s*\(?\s*["`](\.[^"`]*)["`]""")
_ELSEWHERE = re.compile(r"""["'`(](?:https?:)?//[a-z]""")
_ADDRESS = re.compile(r"""(?:src|href)="([^"#]+)\"""")


def answer(name: str, **headers: str) -> files.FileAnswer:
    got = file_answer(name, **{"if_none_match": "", "accept_encoding": "", **headers})
    assert got is not None
    return got


def test_every_file_of_the_folder_is_served_with_its_type() -> None:
    there = {path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*") if path.is_file()}
    assert there | {""} == set(contents())
    assert answer("").headers["content-type"] == "text/html; charset=utf-8"
    assert answer("main.js").headers["content-type"] == "text/javascript; charset=utf-8"


@pytest.mark.parametrize("name", ["../files.py", "/etc/passwd", "pages/", "pages/../main.js", "%2e%2e/files.py", "x"])
def test_no_other_name_is_served(name: str) -> None:
    assert file_answer(name, if_none_match="", accept_encoding="") is None


def test_a_file_that_has_not_changed_is_not_sent_again() -> None:
    first = answer("main.js")
    again = answer("main.js", if_none_match=f'"other", W/{first.headers["etag"]}')
    assert (again.status, again.body) == (304, b"")
    assert answer("main.js", if_none_match='"other"').status == 200


def test_a_file_is_compressed_for_browsers_that_accept_it() -> None:
    plain, packed = answer("main.js"), answer("main.js", accept_encoding="gzip, br")
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body == (STATIC / "main.js").read_bytes()
    assert len(packed.body) < len(plain.body)


@pytest.mark.parametrize("name", [name for name in contents() if name.endswith(".js")])
def test_each_import_of_a_module_is_a_file_of_the_console(name: str) -> None:
    for target in _IMPORT.findall((STATIC / name).read_text()):
        if "${" not in target:
            path = (STATIC / name).parent / target
            assert path.resolve().relative_to(STATIC.resolve()).as_posix() in contents(), target


def test_each_page_of_the_routes_is_there() -> None:
    routes = re.findall(r'^  \["[^"]*", "(\w+)"\],$', (STATIC / "router.js").read_text(), re.MULTILINE)
    assert len(routes) == 9
    assert {f"pages/{name}.js" for name in routes} <= set(contents())


def test_the_page_refers_to_files_of_the_console_and_holds_no_script_or_style() -> None:
    page = (STATIC / "index.html").read_text()
    assert set(_ADDRESS.findall(page)) <= set(contents())
    assert re.findall(r"<script(?![^>]* src=)|<style|style=|\son\w+=", page) == []


@pytest.mark.parametrize("name", [name for name in contents() if name.endswith((".js", ".css", ".html"))])
def test_no_file_names_an_address_elsewhere_or_parses_markup(name: str) -> None:
    text = (STATIC / name).read_text() if name else (STATIC / "index.html").read_text()
    assert _ELSEWHERE.findall(text.replace("http://www.w3.org/", "")) == []
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text) == []


def test_all_files_together_are_small() -> None:
    assert sum(len(content.compressed) for content in contents().values()) < MOST_BYTES
