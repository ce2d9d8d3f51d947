"""The files for containers, systemd and Kubernetes start a server that answers: their commands are run here."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import yaml

from tests import ports
from tests.rooms import ROOT

CONTRIB = ROOT / "contrib"
TOKEN = "a-token-of-the-test"
_SECONDS = 120


def dockerfile() -> dict[str, str]:
    """Returns the last line of each instruction."""
    return dict(re.findall(r"^([A-Z]+) (.+)$", (CONTRIB / "Dockerfile").read_text(), re.MULTILINE))


def documents(name: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all((CONTRIB / name).read_text()) if document]


def stateful_set() -> dict[str, Any]:
    (found,) = (document for document in documents("kubernetes.yaml") if document["kind"] == "StatefulSet")
    return found


def commands() -> dict[str, list[str]]:
    """Returns the arguments of ``hourwheel`` of each file."""
    unit = re.search(r"^ExecStart=\S+/hourwheel (.+)$", (CONTRIB / "hourwheel.service").read_text(), re.MULTILINE)
    assert unit
    (container,) = stateful_set()["spec"]["template"]["spec"]["containers"]
    return {
        "Dockerfile": yaml.safe_load(dockerfile()["CMD"]),
        "compose.yaml": documents("compose.yaml")[0]["services"]["hourwheel"]["command"],
        "hourwheel.service": shlex.split(unit[1]),
        "kubernetes.yaml": container["args"],
    }


@contextmanager
def running(arguments: list[str], folder: Path) -> Iterator[int]:
    """Runs the command as in the container, with its folders below ``folder``, and yields the port."""
    (port,) = ports.free_ports(1)
    places = {"${STATE_DIRECTORY}": str(folder), "${CREDENTIALS_DIRECTORY}": str(folder), "/data/": f"{folder}/"}
    given = arguments
    for place, here in places.items():
        given = [argument.replace(place, here) for argument in given]
    given = ["127.0.0.1" if argument == "0.0.0.0" else argument for argument in given]
    (folder / "tokens").write_text(TOKEN)
    (folder / "tokens").chmod(0o600)
    environment = {**os.environ, "HOURWHEEL_TOKEN": TOKEN}
    if "--token-file" in given:
        del environment["HOURWHEEL_TOKEN"]
    command = [sys.executable, "-m", "hourwheel", *given, "--port", str(port)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        assert server.stdout.readline().startswith("hourwheel listening on")
        try:
            yield port
        finally:
            server.terminate()
            server.communicate(timeout=_SECONDS)
        assert server.returncode == 0


@pytest.mark.parametrize("name", commands())
def test_the_server_starts_and_wants_a_token(tmp_path: Path, name: str) -> None:
    with running(commands()[name], tmp_path) as port:
        asked = Request(f"http://127.0.0.1:{port}/metrics", headers={"authorization": f"Bearer {TOKEN}"})
        with urlopen(asked, timeout=_SECONDS) as answer:
            assert b"hourwheel_archive_behind_seconds" in answer.read() or name == "Dockerfile"
        probe = yaml.safe_load(dockerfile()["HEALTHCHECK"].partition("CMD ")[2])
        here = [sys.executable, *(part.replace(":7420/", f":{port}/") for part in probe[1:])]
        assert subprocess.run(here, timeout=_SECONDS).returncode == 0
    assert (tmp_path / "queue").stat().st_mode & 0o777 == 0o700


def test_the_probe_of_the_container_fails_where_no_server_answers() -> None:
    probe = yaml.safe_load(dockerfile()["HEALTHCHECK"].partition("CMD ")[2])
    (port,) = ports.free_ports(1)
    here = [sys.executable, *(part.replace(":7420/", f":{port}/") for part in probe[1:])]
    assert subprocess.run(here, timeout=_SECONDS, stderr=subprocess.DEVNULL).returncode == 1


def test_kubernetes_runs_the_user_of_the_image_on_its_volume() -> None:
    made = re.search(r"--uid (\d+)", (CONTRIB / "Dockerfile").read_text())
    assert made
    spec = stateful_set()["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == int(made[1])
    assert spec["replicas"] == 1
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]} | {"tmp"}
    (port,) = container["ports"]
    (service,) = (document for document in documents("kubernetes.yaml") if document["kind"] == "Service")
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    assert service["spec"]["selector"] == spec["template"]["metadata"]["labels"]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] == port["name"]


def mount(volume: Path, security: dict[str, Any]) -> None:
    """Gives the group of the pod its rights, as the kubelet does each time that it mounts a volume."""
    is_granted = volume.stat().st_mode & 0o2770 == 0o2770
    if is_granted and security.get("fsGroupChangePolicy") == "OnRootMismatch":
        return
    for path in (volume, *volume.rglob("*")):
        path.chmod(path.stat().st_mode | (0o2770 if path.is_dir() else 0o660))


def test_a_pod_that_starts_again_on_its_volume_may_use_it(tmp_path: Path) -> None:
    volume, pod = tmp_path / "volume", stateful_set()["spec"]["template"]["spec"]
    volume.mkdir()
    for _ in range(2):
        mount(volume, pod["securityContext"])
        with running(commands()["kubernetes.yaml"], volume):
            assert (volume / "queue").stat().st_mode & 0o777 == 0o700


def test_the_image_is_built_from_what_the_repository_has() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv*", "build", "node_modules"} <= set(ignored)
    sources = re.findall(r"^COPY (?!--from)(\S+)", (CONTRIB / "Dockerfile").read_text(), re.MULTILINE)
    assert sources == ["."]


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    verifier = shutil.which("systemd-analyze")
    text = (CONTRIB / "hourwheel.service").read_text()
    assert "Type=notify\n" in text
    if verifier is None:
        return  # a machine without systemd: the unit's command was run above
    unit = tmp_path / "hourwheel.service"
    unit.write_text(text.replace("/opt/hourwheel/bin/hourwheel", sys.executable))
    done = subprocess.run([verifier, "verify", unit], capture_output=True, text=True, timeout=_SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
