"""Tests the layers that ``make layers`` builds. A second build gives equal bytes."""

import json
import re
import struct
from pathlib import Path

import pytest

from bench import imports
from layers import build

LAYERS = build.ROOT / "build/layers"
DEPENDENCIES, LIBRARY = LAYERS / "dependencies", LAYERS / "hourwheel"

CEILING_MB = 22

# The first bytes of a byte code file of each runtime.
MAGIC = {"3.11": 3495, "3.12": 3531, "3.13": 3571, "3.14": 3627}

UNCHECKED_HASH = 0b01


def runtime() -> str:
    return (LAYERS / "runtime.txt").read_text().strip()


def files(folder: Path, suffix: str = "") -> list[Path]:
    return [path for path in folder.rglob(f"*{suffix}") if path.is_file()]


def test_both_layers_are_small() -> None:
    megabytes = sum(build.size(layer) for layer in (DEPENDENCIES, LIBRARY)) / 1e6
    assert 1 < megabytes <= CEILING_MB


def test_the_library_comes_without_what_no_function_needs() -> None:
    packages = {path.name for path in (LIBRARY / "python/hourwheel").iterdir()} - {"__pycache__"}
    assert packages == {path.name for path in build.SOURCE.iterdir()} - build.LEFT_OUT - {"__pycache__"}
    assert packages.isdisjoint({"embedded", "client", "cli", "__main__.py", "py.typed"})


def test_no_module_imports_what_was_left_out() -> None:
    left_out = {name.removesuffix(".py").replace("/", ".") for name in build.LEFT_OUT}
    for path in (LIBRARY / "python/hourwheel").rglob("*.py"):
        imported = re.findall(r"^\s*(?:from|import) hourwheel\.([\w.]+)", path.read_text(), re.MULTILINE)
        wrong = {name for name in imported for part in left_out if f"{name}.".startswith(f"{part}.")}
        assert not wrong, f"{path.name} imports {wrong}"


def test_the_layer_has_nothing_but_the_library() -> None:
    assert [path.name for path in (LIBRARY / "python").iterdir()] == ["hourwheel"]


def test_each_module_has_byte_code_for_the_runtime_that_is_taken_as_it_is() -> None:
    tag = f"cpython-{runtime().replace('.', '')}"
    for layer in (DEPENDENCIES, LIBRARY):
        modules = {path.relative_to(layer) for path in files(layer, ".py")}
        compiled = {path.relative_to(layer) for path in files(layer, ".pyc")}
        assert compiled == {path.parent / "__pycache__" / f"{path.stem}.{tag}.pyc" for path in modules}
        for path in compiled:
            magic, end, flags = struct.unpack("<H2sI", (layer / path).read_bytes()[:8])
            assert (magic, end, flags) == (MAGIC[runtime()], b"\r\n", UNCHECKED_HASH), path


def test_no_file_names_the_folder_that_it_was_made_in() -> None:
    for layer in (DEPENDENCIES, LIBRARY):
        for path in files(layer):
            content = path.read_bytes()
            assert str(build.ROOT).encode() not in content, path
            if path.suffix == ".pyc":
                assert f"/opt/{path.relative_to(layer).parent.parent}/".encode() in content, path


def test_files_have_the_same_modes_and_times_everywhere() -> None:
    for layer in (DEPENDENCIES, LIBRARY):
        for path in layer.rglob("*"):
            status = path.stat()
            assert (status.st_mode & 0o777, status.st_mtime) == (0o755 if path.is_dir() else 0o644, build.ZIP_EPOCH)


def test_compiled_packages_are_for_arm64() -> None:
    compiled = files(DEPENDENCIES, ".so")
    assert {path.relative_to(DEPENDENCIES / "python").parts[0] for path in compiled} >= {"msgspec", "pydantic_core"}
    for path in compiled:
        magic, machine = struct.unpack("<4s14xH", path.read_bytes()[:20])
        assert (magic, machine) == (b"\x7fELF", 183), path


def test_licences_come_with_the_packages() -> None:
    for metadata in DEPENDENCIES.glob("python/*.dist-info"):
        licences = [path for path in files(metadata) if re.match(r"LICEN[CS]E|COPYING", path.name)]
        assert licences, metadata.name


def test_the_sdk_has_the_services_that_are_called_and_no_others() -> None:
    data = DEPENDENCIES / "python/botocore/data"
    assert {path.name for path in data.iterdir() if path.is_dir()} == build.SERVICES
    partitions = json.loads((data / "endpoints.json").read_text())["partitions"]
    assert {service for one in partitions for service in one["services"]} == build.SERVICES
    assert all((data / service).glob("*/service-2.json") for service in build.SERVICES)


@pytest.mark.parametrize("function", imports.FUNCTIONS)
def test_a_function_needs_nothing_but_the_layers(function: str) -> None:
    _, loaded = imports.measured_function(function, runs=1)
    assert {"hourwheel", "botocore"} <= loaded


def test_texts_leave_a_model_but_members_of_the_same_name_stay() -> None:
    model = {"documentation": "text", "members": {"documentation": {"shape": "Text", "documentation": "text"}}}
    assert build.undocumented([model]) == [{"members": {"documentation": {"shape": "Text"}}}]


def test_the_library_is_the_same_wherever_and_whenever_it_is_made(tmp_path: Path) -> None:
    python = build.interpreter()
    digests = set()
    for name in ("here", "there/and/later"):
        build.build_library(build.emptied(tmp_path / name), python)
        digests.add(build.digest(tmp_path / name))
    assert len(digests) == 1
    (tmp_path / "here/python/hourwheel/times.py").chmod(0o600)
    assert build.digest(tmp_path / "here") not in digests


def versions(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ]+)", (build.ROOT / "requirements" / lock).read_text(), re.MULTILINE))


def test_the_versions_are_those_that_are_tested() -> None:
    deployed, tested = versions("layer.lock"), versions("dev.lock")
    assert {"botocore", "msgspec", "pydantic", "aws-lambda-powertools"} <= deployed.keys()
    assert deployed.items() <= tested.items()


def test_the_lock_names_no_host_and_a_hash_for_each_package() -> None:
    text = build.LOCK.read_text()
    assert "://" not in text
    assert "--index" not in text
    entries = re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in entry for entry in entries)


def test_what_is_installed_is_what_is_locked() -> None:
    installed = {
        re.sub(r"[._]", "-", name): version
        for path in DEPENDENCIES.glob("python/*.dist-info")
        for name, _, version in [path.name.removesuffix(".dist-info").partition("-")]
    }
    wanted = versions("layer.lock")
    if runtime() == "3.14":  # this Python has zstd itself
        del wanted["backports-zstd"]
    assert installed == wanted
