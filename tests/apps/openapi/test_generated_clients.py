"""Clients that are generated from the OpenAPI document send, pull and settle."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.docs.pages import ROOT
from tests.integration.conftest import server, start
from tests.integration.process import Server

__all__ = ["server", "start"]

DOCUMENT = ROOT / "layers/hourwheel/python/hourwheel/api/openapi.json"
CLIENTS = Path(__file__).parent / "clients"
TOLD = ["one customer-42 0", "settled", "string", "404 urn:hourwheel:subject-unknown"]


def run(command: Sequence[str | Path], folder: Path, *, path: Path) -> list[str]:
    """Returns the lines that a command prints. Its tools come from ``path`` first."""
    environment = {**os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_a_second_validator_takes_the_document(tmp_path: Path) -> None:
    tools = ROOT / ".venv-generator/bin"
    validated = run([tools / "openapi-spec-validator", "--errors", "all", DOCUMENT], tmp_path, path=tools)
    assert validated == [f"{DOCUMENT}: OK"]


def test_a_second_validator_refuses_a_document_with_an_unknown_field(tmp_path: Path) -> None:
    """Proves that the validator ran."""
    told = json.loads(DOCUMENT.read_text())
    told["paths"]["/v1/health"]["get"]["responses"] = {"200": {"content": {}}}
    (tmp_path / "wrong.json").write_text(json.dumps(told))
    command = [ROOT / ".venv-generator/bin/openapi-spec-validator", tmp_path / "wrong.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "Validation Error" in done.stdout) == (1, True), done.stdout + done.stderr


def test_a_client_in_typescript_is_typed_and_works(server: Server, tmp_path: Path) -> None:
    tools = ROOT / "node_modules/.bin"
    (tmp_path / "node_modules").symlink_to(ROOT / "node_modules")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    shutil.copy(CLIENTS / "settle.ts", tmp_path)
    types = ["--output", "hourwheel.d.ts", "--default-non-nullable", "false"]
    run([tools / "openapi-typescript", DOCUMENT, *types], tmp_path, path=tools)
    strict = ["--strict", "--module", "nodenext", "--target", "es2022", "--skipLibCheck"]
    run([tools / "tsc", *strict, "settle.ts"], tmp_path, path=tools)
    assert run(["node", "settle.js", f"http://127.0.0.1:{server.port}"], tmp_path, path=tools) == TOLD


def test_a_client_in_python_works_without_the_library(server: Server, tmp_path: Path) -> None:
    tools = ROOT / ".venv-generator/bin"
    made = ["--meta", "none", "--output-path", "generated", "--fail-on-warning"]
    run([tools / "openapi-python-client", "generate", "--path", DOCUMENT, *made], tmp_path, path=tools)
    shutil.copy(CLIENTS / "settle.py", tmp_path)
    told = run([tools / "python", "settle.py", f"http://127.0.0.1:{server.port}"], tmp_path, path=tools)
    assert told == TOLD
