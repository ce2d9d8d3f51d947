"""Provides Chromium for the tests of the console: the binary of the npm package ``@sparticuz/chromium``, unpacked once.

The package holds a headless shell for Linux on x86-64, with the libraries and the font that a bare machine lacks.
Nothing is installed in the system, and nothing is downloaded but the package. ``CHROMIUM`` names another browser, for
other machines: the path of a Chromium or a headless shell.
"""

import io
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "node_modules/@sparticuz/chromium"

# Python 3.11 to 3.13 cannot read Brotli; Node can.
_DECOMPRESS = "process.stdout.write(zlib.brotliDecompressSync(fs.readFileSync(process.argv[1])))"
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
<dir prefix="relative">fonts</dir>
<include ignore_missing="yes">/etc/fonts/fonts.conf</include>
<cachedir prefix="xdg">fontconfig</cachedir>
</fontconfig>
"""
_ARGUMENTS = (
    "--no-sandbox",  # the kernel of a container may refuse namespaces, and the pages are ours
    "--no-zygote",
    "--disable-gpu",
    "--disable-dev-shm-usage",  # /dev/shm has 64 MB in containers
    "--font-render-hinting=none",
)


class NoChromium(Exception):
    """This machine has no Chromium. The message says what to install."""


@dataclass(frozen=True)
class Chromium:
    """A browser that can be started. ``environment`` is added to that of this process."""

    path: Path
    environment: dict[str, str] = field(default_factory=dict)


def find() -> Chromium:
    """Returns the Chromium that ``CHROMIUM`` names, or that of the npm package, unpacked below ``build``.

    Raises ``NoChromium`` where the package is not installed, or does not run on this machine.
    """
    if named := os.environ.get("CHROMIUM"):
        if not os.access(named, os.X_OK):
            raise NoChromium(f"CHROMIUM={named} is no program: name the path of a Chromium or a headless shell")
        return Chromium(Path(named))
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise NoChromium(
            f"the Chromium of the npm package runs on Linux on x86-64, not on {sys.platform} on {platform.machine()}: "
            "install a Chromium, and name its path in CHROMIUM"
        )
    if not PACKAGE.is_dir():
        raise NoChromium("the npm package @sparticuz/chromium is not installed: run npm ci, as make test does")
    return _unpacked()


@contextmanager
def browser() -> Iterator[Browser]:
    """Starts the browser, and stops it at the end. Raises ``NoChromium``."""
    chromium = find()
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=chromium.path,
            args=list(_ARGUMENTS),
            env={**os.environ, **chromium.environment},
            timeout=120_000,  # one that starts on a busy machine
        )
        try:
            yield started
        finally:
            started.close()


def _unpacked() -> Chromium:
    # Named after the package's size: another version gets another folder.
    folder = ROOT / f"build/chromium-{(PACKAGE / 'bin/chromium.br').stat().st_size}"
    if not folder.exists():
        folder.parent.mkdir(exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix="chromium-", dir=folder.parent))
        try:
            _unpack(partial)
            with suppress(OSError):  # another process was faster
                partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    environment = {
        "LD_LIBRARY_PATH": str(folder / "lib"),
        "FONTCONFIG_FILE": str(folder / "fonts.conf"),
        "HOME": str(folder),  # settings of the person who runs the tests have no effect
    }
    return Chromium(folder / "chromium", environment)


def _unpack(folder: Path) -> None:
    for name in ("al2023", "fonts"):
        with tarfile.open(fileobj=io.BytesIO(_decompressed(name + ".tar.br"))) as archive:
            archive.extractall(folder, filter="data")
    (folder / "fonts.conf").write_text(_FONTS)
    program = folder / "chromium"
    program.write_bytes(_decompressed("chromium.br"))
    program.chmod(0o755)


def _decompressed(name: str) -> bytes:
    return subprocess.run(
        ["node", "--eval", _DECOMPRESS, str(PACKAGE / "bin" / name)], check=True, capture_output=True
    ).stdout
