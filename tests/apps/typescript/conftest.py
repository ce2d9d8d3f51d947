"""Builds the client for TypeScript once, as its users do."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.integration.conftest import server, start

__all__ = ["client", "server", "start"]

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with the compiled client in ``dist``, and what uses it."""
    clone = tmp_path_factory.mktemp("clone")
    for name in ("node_modules", "layers"):
        (clone / name).symlink_to(ROOT / name)
    folder = clone / "clients/typescript"
    shutil.copytree(ROOT / "clients/typescript", folder, ignore=shutil.ignore_patterns("api.ts", "dist"))
    made = subprocess.run(["npm", "run", "build"], cwd=folder, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    for script in HERE.glob("*.mjs"):
        shutil.copy(script, folder)
    return folder
