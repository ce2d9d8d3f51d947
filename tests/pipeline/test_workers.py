"""A task leaves the Python worker so that the next task begins sooner."""

import sys
from collections.abc import Iterator
from importlib import import_module, invalidate_caches
from pathlib import Path
from zipfile import ZipFile
from zipimport import zipimporter

import pytest

from hourwheel_pipeline.archive_rows.workers import forget_zip_finders

PACKAGE = "zipped_for_workers"


@pytest.fixture
def zipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yields a package of two modules in a zip file on the path."""
    with ZipFile(tmp_path / "modules.zip", "w") as file:
        for name, text in (("__init__", ""), ("first", "NUMBER = 1"), ("second", "NUMBER = 2")):
            file.writestr(f"{PACKAGE}/{name}.py", text)
    monkeypatch.syspath_prepend(tmp_path / "modules.zip")
    yield str(tmp_path / "modules.zip")
    for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
        del sys.modules[name]


def finders_of(path: str) -> list[str]:
    return [
        name
        for name, finder in sys.path_importer_cache.items()
        if name.startswith(path) and isinstance(finder, zipimporter)
    ]


def test_no_finder_of_a_zip_file_is_left_and_its_modules_can_still_be_imported(zipped: str) -> None:
    assert import_module(f"{PACKAGE}.first").NUMBER == 1
    assert finders_of(zipped)

    forget_zip_finders()
    invalidate_caches()

    assert not finders_of(zipped)
    assert import_module(f"{PACKAGE}.second").NUMBER == 2
