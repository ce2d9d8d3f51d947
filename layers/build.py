"""Builds the two Lambda layers, without Docker.

build/layers/runtime.txt                     the Python of the functions, such as 3.13
build/layers/dependencies/python/…           requirements/layer.lock for Linux on arm64, without unused files
build/layers/dependencies.key                a digest of its inputs: it is built anew only when they change
build/layers/hourwheel/python/hourwheel/…    the library, as far as functions need it

Byte code is for one minor version of Python, so the functions run on the version of the interpreter that compiled it:
3.13 if it is installed, otherwise the one that runs this program. The same inputs and interpreter give the same bytes.

Without byte code a cold start takes 400 ms of CPU more. botocore comes without boto3, with six of its 439 models, and
without their texts. DynamoDB's client is made in 13 ms of CPU instead of 48. The layers have 18 MB instead of 35. As no
function imports pydantic, a function is imported in 140 to 180 ms of CPU instead of 270 to 300. Most of the rest is
botocore with urllib3 (95 ms); a client of our own would be faster, and ours to maintain.
"""

import argparse
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "layers/hourwheel/python/hourwheel"
LOCK = ROOT / "requirements/layer.lock"

PREFERRED = "3.13"
RUNTIMES = ("3.11", "3.12", "3.13", "3.14")

# All runtimes of Lambda have this glibc.
PLATFORM = "manylinux2014_aarch64"

# Modules that no function needs. A new module is in the layer unless it is named here.
LEFT_OUT = frozenset(
    {
        *(
            "__main__.py",
            "aws/bill",
            "aws/policies.py",
            "cli",
            "client",
            "console",
            "embedded",
            "policies.py",
            "py.typed",
        ),
        *("apps", "celery", "django", "dramatiq", "idempotency", "outbox", "testing"),  # what applications import
    }
)

# The services that the adapters call, without those for kinds of credentials that functions do not have.
SERVICES = frozenset({"dynamodb", "events", "lambda", "s3", "scheduler", "sqs"})

_UNUSED = re.compile(
    "|".join(
        (
            r"bin",
            r".*\.pyi|.*/py\.typed",
            r"aws_lambda_powertools/event_handler",
            r"aws_lambda_powertools/utilities/(?!__init__|jmespath_utils|typing)[^/]*",
            r"backports/zstd/zipfile",
            rf"botocore/data/(?!({'|'.join(sorted(SERVICES))})$)[^/]*(?<!\.json)",
            r"botocore/data/.*/(examples|waiters)-.*",
            r"dateutil/zoneinfo/.*\.tar\.gz",  # an old copy of the system's time zones
            r"pydantic/v1",
            r"urllib3/contrib/emscripten",  # browsers
            r"[^/]*\.dist-info/(?!METADATA$|LICEN[CS]E|NOTICE|COPYING|licenses)[^/]*",
        )
    )
)

ZIP_EPOCH = 315_532_800
"""1980: a zip file cannot store an earlier time."""


@dataclass(frozen=True)
class Interpreter:
    path: str
    full_version: str

    @classmethod
    def at(cls, path: str) -> "Interpreter | None":
        """Returns the interpreter at the path; None if it does not run, as pyenv's shims of versions that are not
        selected."""
        try:
            return cls(path, isolated(path, "-c", "import platform; print(platform.python_version())").strip())
        except (OSError, subprocess.CalledProcessError):
            return None

    @property
    def version(self) -> str:
        return self.full_version.rpartition(".")[0]


def isolated(python: str, *arguments: str) -> str:
    """Runs a command of an interpreter, isolated from settings of the environment. Returns its output."""
    command = [python, "-I", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 - a command of our own


def interpreter() -> Interpreter:
    """Returns the interpreter that compiles for the functions: one of the preferred version, from the path or from
    pyenv, otherwise the one that runs this program."""
    name = f"python{PREFERRED}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    others = [shutil.which(name), *sorted(map(str, pyenv.glob(f"versions/{PREFERRED}.*/bin/{name}")))]
    paths = (sys.executable, *others)
    interpreters = [found for path in paths if path and (found := Interpreter.at(path))]
    chosen = next((python for python in interpreters if python.version == PREFERRED), interpreters[0])
    if chosen.version not in RUNTIMES:
        raise SystemExit(f"Lambda may not have Python {chosen.version}: install one of {', '.join(RUNTIMES)}")
    return chosen


def build_dependencies(folder: Path, python: Interpreter) -> None:
    """Installs the packages of the lock. Needs the package index, or pip's cache of it."""
    with tempfile.TemporaryDirectory() as scratch:
        # Run by the functions' Python: pip reads the markers of the lock for the interpreter that runs it.
        command = [sys.executable, "-m", "pip", "--python", python.path, "install", "--quiet", "--no-compile"]
        command += ["--disable-pip-version-check", "--root-user-action", "ignore", "--no-deps"]
        command += ["--require-hashes", "--requirement", str(LOCK), "--only-binary", ":all:", "--target", scratch]
        command += ["--platform", PLATFORM, "--implementation", "cp", "--python-version", python.version]
        subprocess.run(command, check=True)  # noqa: S603 - a command of our own
        copy(Path(scratch), folder / "python", lambda path: not _UNUSED.fullmatch(path))
    trim_metadata(folder / "python")
    trim_models(folder / "python/botocore/data")
    finish(folder, python)


def build_library(folder: Path, python: Interpreter) -> None:
    library = folder / "python/hourwheel"
    copy(SOURCE, library, lambda path: path not in LEFT_OUT)
    document = library / "api/openapi.json"
    document.write_text(compact(json.loads(document.read_text("utf-8"))), "utf-8")
    finish(folder, python)


def copy(source: Path, target: Path, wanted: Callable[[str], bool]) -> None:
    """Copies the files for which ``wanted`` returns true, and nothing below a folder for which it does not. ``wanted``
    gets paths relative to ``source``."""
    for folder, folders, files in os.walk(source):
        inside = Path(folder).relative_to(source)
        folders[:] = [name for name in folders if name != "__pycache__" and wanted((inside / name).as_posix())]
        for name in files:
            if wanted((inside / name).as_posix()):
                (target / inside).mkdir(parents=True, exist_ok=True)
                shutil.copyfile(Path(folder, name), target / inside / name)


def trim_metadata(folder: Path) -> None:
    """Keeps only the headers (versions and licences), without the read-me that follows them."""
    for path in folder.glob("*.dist-info/METADATA"):
        path.write_text(path.read_text("utf-8").partition("\n\n")[0] + "\n", "utf-8")


def trim_models(data: Path) -> None:
    """Keeps one version of each service's model, without its documentation and uncompressed: botocore then makes a
    client in a third of the time."""
    for service in SERVICES:
        for old in sorted((data / service).iterdir())[:-1]:
            shutil.rmtree(old)
    for path in sorted(data.rglob("*.json*")):
        packed = path.suffix == ".gz"
        content = json.loads(gzip.decompress(path.read_bytes()) if packed else path.read_bytes())
        if path == data / "endpoints.json":
            for partition in content["partitions"]:
                partition["services"] = {
                    name: service for name, service in partition["services"].items() if name in SERVICES
                }
        path.unlink()
        (path.with_suffix("") if packed else path).write_text(compact(undocumented(content)), "utf-8")


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def undocumented(value: Any) -> Any:
    """Returns the model without its texts. A member of a structure may have the same key, but is no text."""
    if isinstance(value, list):
        return [undocumented(element) for element in value]
    if not isinstance(value, dict):
        return value
    return {
        name: undocumented(member)
        for name, member in value.items()
        if not (name in ("documentation", "documentationUrl") and isinstance(member, str))
    }


def finish(folder: Path, python: Interpreter) -> None:
    """Compiles the files with the paths that they have in Lambda, and sets fixed modes and times."""
    # Unchecked: Lambda need not read the sources, and their times, which packing changes, do not matter.
    compiled = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", "-s", str(folder), "-p", "/opt"]
    isolated(python.path, *compiled, str(folder / "python"))
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
        os.utime(path, (ZIP_EPOCH, ZIP_EPOCH))


def digest(folder: Path) -> str:
    """Returns a digest of every path, mode and byte below the folder."""
    total = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(folder).as_posix()} {path.stat().st_mode:o} {content}\n".encode())
    return total.hexdigest()


def size(path: Path) -> int:
    return sum(file.stat().st_size for file in (path, *path.rglob("*")) if file.is_file())


def build(output: Path, python: Interpreter) -> None:
    """Builds both layers below ``output``."""
    stamp, key = output / "dependencies.key", _inputs_digest(python)
    if not stamp.exists() or stamp.read_text() != key:
        stamp.unlink(missing_ok=True)
        build_dependencies(emptied(output / "dependencies"), python)
        stamp.write_text(key)
    build_library(emptied(output / "hourwheel"), python)
    (output / "runtime.txt").write_text(f"{python.version}\n")


def _inputs_digest(python: Interpreter) -> str:
    inputs = (LOCK.read_bytes(), Path(__file__).read_bytes(), python.full_version.encode())
    return hashlib.sha256(b"".join(hashlib.sha256(content).digest() for content in inputs)).hexdigest()


def emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def described(folder: Path) -> Iterator[str]:
    yield f"{size(folder) / 1e6:6.2f} MB  {folder.name}, sha256 {digest(folder)}"
    for path in sorted((folder / "python").iterdir(), key=size, reverse=True)[:10]:
        yield f"{size(path) / 1e6:10.2f}  {path.name}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds the Lambda layers.")
    parser.add_argument("--output", type=Path, default=ROOT / "build/layers")
    parser.add_argument(
        "--check", action="store_true", help="build a second time elsewhere, and fail if the bytes differ"
    )
    options = parser.parse_args()
    python = interpreter()
    build(options.output, python)
    layers = [options.output / name for name in ("dependencies", "hourwheel")]
    lines = [f"layers for Python {python.version} on arm64", *(line for folder in layers for line in described(folder))]
    lines.append(f"{sum(map(size, layers)) / 1e6:6.2f} MB in all")
    sys.stdout.write("\n".join(lines) + "\n")
    if not options.check:
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        build(Path(scratch), python)
        differing = [folder.name for folder in layers if digest(Path(scratch) / folder.name) != digest(folder)]
    sys.stdout.write(f"built again: {f'{differing} differ' if differing else 'the same'}\n")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
