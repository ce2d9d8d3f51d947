"""Downloads the tests in the source packages of the frameworks to ``build/sources``.

``make verify`` calls this module, which downloads the packages that ``requirements/sources.lock`` pins.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
LOCK = ROOT / "requirements/sources.lock"
SOURCES = ROOT / "build/sources"
TESTS = {"celery": "t", "dramatiq": "tests", "kombu": "t"}
"""The folder of the tests in each package. The rest stays packed: the tests import the installed packages."""


def pinned() -> dict[str, str]:
    """Returns the version of each package of the lock."""
    lines = [line.split()[0] for line in LOCK.read_text().splitlines() if "==" in line]
    return dict(line.split("==") for line in lines)


def folder(package: str, sources: Path = SOURCES) -> Path:
    """Returns the folder that holds the tests of a package. Raises ``FileNotFoundError`` where there is none."""
    found = sources / f"{package}-{pinned()[package]}"
    if not (found / TESTS[package]).is_dir():
        raise FileNotFoundError(f"{found} holds no tests of {package}: run `make {SOURCES.relative_to(ROOT)}/ready`")
    return found


def download() -> None:
    """Downloads the packages by pip, which checks their hashes, and unpacks their tests."""
    shutil.rmtree(SOURCES, ignore_errors=True)
    SOURCES.mkdir(parents=True)
    choices = ["--require-hashes", "--no-deps", "--no-binary", ":all:", "--no-build-isolation"]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *choices, "--dest", str(SOURCES), "--requirement", str(LOCK)], check=True)
    for package, version in pinned().items():
        name = f"{package}-{version}"
        with tarfile.open(SOURCES / f"{name}.tar.gz") as archive:
            chosen = [each for each in archive if each.name.startswith(f"{name}/{TESTS[package]}/")]
            archive.extractall(SOURCES, chosen, filter="data")


if __name__ == "__main__":
    download()
