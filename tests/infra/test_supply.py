"""The bill of materials and the audit cover the packages that the locks pin."""

import json
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from infra.supply import audit, sbom
from infra.supply.locks import NODE_LOCK, PYTHON_LOCKS, Package, every_package, packages

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("lock", [*PYTHON_LOCKS, NODE_LOCK], ids=lambda lock: lock.stem)
def test_a_bill_names_each_package_that_the_lock_pins(lock: Path) -> None:
    made = sbom.bill(lock)
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    if lock != NODE_LOCK:
        pinned = sum("==" in line and not line.startswith((" ", "#")) for line in lock.read_text().splitlines())
        assert len(made["components"]) == pinned
    references = [component["bom-ref"] for component in made["components"]]
    assert len(set(references)) == len(references)
    assert sbom.bill(lock) == made


def test_functions_and_jobs_are_told_apart() -> None:
    names = {
        name: {component["name"] for component in sbom.bill(ROOT / f"requirements/{name}.lock")["components"]}
        for name in ("layer", "emr")
    }
    assert "pydantic" in names["layer"] & names["emr"]
    assert "pyarrow" in names["emr"] - names["layer"]
    assert "moto" not in names["layer"] | names["emr"]


def test_markers_and_scopes_are_part_of_a_component(tmp_path: Path) -> None:
    lock = tmp_path / "some.lock"
    lock.write_text("one[extra]==1.0 ; python_version < '3.12' \\\n    --hash=sha256:00\ntwo==2.0\n    # via one\n")
    assert packages(lock) == [Package("PyPI", "one", "1.0", "python_version < '3.12'"), Package("PyPI", "two", "2.0")]
    assert Package("npm", "@aws-cdk/x", "2.0.0").url == "pkg:npm/%40aws-cdk/x@2.0.0"
    lock.write_text("# nothing\n")
    with pytest.raises(ValueError, match=r"some\.lock pins no package"):
        packages(lock)


def test_pyarrow_is_new_enough_wherever_it_is_pinned() -> None:
    versions = {one.version for one in every_package() if one.name == "pyarrow"}
    assert versions
    assert all(tuple(map(int, version.split("."))) >= (23, 0, 1) for version in versions)
    assert (ROOT / "pyproject.toml").read_text().count('"pyarrow>=23.0.1"') == 2


@contextmanager
def osv(answer: Callable[[list[Any]], bytes]) -> Iterator[str]:
    """Serves these answers as a source of advisories, and yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            queries = json.loads(self.rfile.read(int(self.headers["content-length"])))["queries"]
            body = answer(queries)
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1/querybatch"
        server.shutdown()
        thread.join()


def results(queries: list[Any], vulnerable: str = "") -> bytes:
    found = [{"vulns": [{"id": "GHSA-1"}]} if one["package"]["name"] == vulnerable else {} for one in queries]
    return json.dumps({"results": found}).encode()


def test_an_audit_without_findings_asks_for_every_package(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[Any] = []

    def answer(queries: list[Any]) -> bytes:
        asked.extend(queries)
        return results(queries)

    with osv(answer) as source:
        assert audit.main(["--source", source]) == 0
    named = {(one["package"]["ecosystem"], one["package"]["name"], one["version"]) for one in asked}
    assert named == {(one.ecosystem, one.name, one.version) for one in every_package()}
    assert {"PyPI", "npm"} == {ecosystem for ecosystem, _, _ in named}
    assert capsys.readouterr().out == f"{len(named)} packages, 0 advisories\n"


def test_advisories_fail_the_audit_and_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with osv(lambda queries: results(queries, "pydantic")) as source:
        assert audit.main(["--source", source]) == 1
    assert "PyPI pydantic" in capsys.readouterr().out


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b'{"results": []}', b'{"message": "no"}'])
def test_a_source_that_cannot_be_understood_is_no_audit(capsys: pytest.CaptureFixture[str], answer: bytes) -> None:
    with osv(lambda _: answer) as source:
        assert audit.main(["--source", source]) == 3
    shown = capsys.readouterr()
    assert shown.err.startswith("NOT AUDITED: ")
    assert shown.out == ""


def test_a_source_that_is_out_of_reach_is_no_audit(capsys: pytest.CaptureFixture[str]) -> None:
    assert audit.main(["--source", "http://127.0.0.1:9/v1/querybatch"]) == 3
    assert "Nothing is known about advisories" in capsys.readouterr().err


@pytest.mark.parametrize(("status", "passes"), [(audit.CLEAN, True), (audit.FOUND, False), (audit.UNKNOWN, True)])
def test_advisories_fail_make_verify_and_a_source_out_of_reach_does_not(status: int, passes: bool) -> None:
    asked = ["make", "--dry-run", "--no-print-directory", "verify"]
    shown = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in shown.splitlines() if "infra.supply.audit" in line]
    gate = re.sub(r"\S+ -m infra\.supply\.audit", f"(exit {status})", line)
    assert (subprocess.run(gate, shell=True, check=False).returncode == 0) is passes
