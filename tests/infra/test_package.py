"""The package of ``make pipeline-package`` contains the imports of jobs on EMR Serverless."""

import ast
import re
import sys
import tarfile
from pathlib import Path

import pytest

from pipeline import build

MADE = build.ROOT / "build/pipeline"
ARM64 = 183
"""The bytes of the machine in the header of an ELF file."""

LINKED = re.compile(rb"\0(lib(?:arrow|parquet)\w*\.so\.\d+)\0")
OF_SPARK = {"pyspark", "py4j"}


@pytest.fixture(scope="module")
def dependencies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("dependencies", tmp_path_factory.mktemp("dependencies"))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("hourwheel", tmp_path_factory.mktemp("hourwheel"))


def unpacked(name: str, folder: Path) -> Path:
    with tarfile.open(MADE / f"{name}.tgz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def test_what_is_packed_stands_in_the_repository(library: Path) -> None:
    assert {path.name for path in library.iterdir()} == build.SOURCES.keys()
    for name, source in build.SOURCES.items():
        packed = {path.relative_to(library / name): path.read_bytes() for path in (library / name).rglob("*.py")}
        there = {path.relative_to(source): path.read_bytes() for path in source.rglob("*.py")}
        assert packed == there, f"{name} has changed since: run `make pipeline-package`"


def test_all_that_is_compiled_is_for_the_processor_and_python_of_the_jobs(dependencies: Path) -> None:
    compiled = [path for path in dependencies.rglob("*") if re.search(r"\.so(\.\d+)*$", path.name)]
    assert len(compiled) > 50
    for path in compiled:
        header = path.read_bytes()[:20]
        assert header[:4] == b"\x7fELF", path
        assert int.from_bytes(header[18:20], "little") == ARM64, path
        assert "cpython-" not in path.name or "cpython-311-" in path.name, path


def test_what_was_left_out_of_arrow_nothing_of_it_links(dependencies: Path) -> None:
    folder = dependencies / "pyarrow"
    there = {path.name for path in folder.iterdir()}
    linked = {name.decode() for path in folder.glob("*.so*") for name in LINKED.findall(path.read_bytes())}
    assert len(linked) > 3
    assert linked <= there


def test_all_that_jobs_import_is_packed(dependencies: Path, library: Path) -> None:
    packed = {path.name.partition(".")[0] for folder in (dependencies, library) for path in folder.iterdir()}
    packed |= {"backports"} if (dependencies / "backports").exists() else set()
    for package in ("hourwheel_pipeline", "pyspark_hourwheel"):
        for path in (library / package).rglob("*.py"):
            missing = imported(path) - packed - OF_SPARK - sys.stdlib_module_names
            assert not missing, f"{path.relative_to(library)} imports {missing}"


def imported(path: Path) -> set[str]:
    """Returns the packages that a module imports anywhere."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


def test_spark_comes_from_emr_and_byte_code_from_nowhere(dependencies: Path, library: Path) -> None:
    assert not {path.name for path in dependencies.iterdir()} & OF_SPARK
    assert not [path for folder in (dependencies, library) for path in folder.rglob("*.pyc")]


def test_the_package_is_small_enough_to_be_fetched_by_each_process() -> None:
    build.check([MADE / "dependencies.tgz", MADE / "hourwheel.tgz"])


def test_a_package_that_has_outgrown_its_ceiling_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "large.tgz"
    archive.write_bytes(bytes(2_000_000))
    monkeypatch.setattr(build, "CEILING_BYTES", 1_000_000)
    with pytest.raises(build.PackageTooLarge, match=r"2\.0 MB and may have 1"):
        build.check([archive])


def test_the_same_files_give_the_same_bytes_whoever_made_them_and_when(tmp_path: Path) -> None:
    for name, mode in (("one", 0o600), ("two", 0o755)):
        for file in ("b.py", "a/c.py"):
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"# {file}\n")
            path.chmod(mode)
        build.pack(tmp_path / name, tmp_path / f"{name}.tgz")
    assert (tmp_path / "one.tgz").read_bytes() == (tmp_path / "two.tgz").read_bytes()
    with tarfile.open(tmp_path / "one.tgz") as archive:
        assert archive.getnames() == ["a/c.py", "b.py"]
