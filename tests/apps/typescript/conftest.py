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
    folder = tmp_path_factory.mktemp("typescript")
    shutil.copytree(ROOT / "clients/typescript/src", folder / "src", ignore=shutil.ignore_patterns("api.ts"))
    shutil.copy(ROOT / "clients/typescript/tsconfig.json", folder)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "node_modules").symlink_to(ROOT / "node_modules")
    document = ROOT / "layers/hourwheel/python/hourwheel/api/openapi.json"
    types = ["openapi-typescript", str(document), "--output", "src/api.ts", "--default-non-nullable", "false"]
    for command in (types, ["tsc"]):
        made = subprocess.run(
            [f"node_modules/.bin/{command[0]}", *command[1:]], cwd=folder, capture_output=True, text=True, check=False
        )
        assert made.returncode == 0, made.stdout + made.stderr
    for script in HERE.glob("*.mjs"):
        shutil.copy(script, folder)
    return folder
