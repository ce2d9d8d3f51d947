"""Packs the packages that the jobs import on EMR Serverless, without Docker.

build/pipeline/dependencies.tgz    requirements/emr.lock for Python 3.11 on Linux, arm64, without unused files
build/pipeline/dependencies.key    a digest of its inputs: it is packed anew only when they change
build/pipeline/hourwheel.tgz       the library, the jobs, the Spark data source

Spark unpacks the archives beside each process (``spark.archives``), and PYTHONPATH names the folders. Spark chooses by
the suffix how to unpack an archive. The CDK keeps only the last suffix of a file name, so the archives are .tgz: of
.tar.gz it would keep .gz. The archives have no byte code, so any Python can pack them, and equal inputs give equal
bytes.
"""

import argparse
import gzip
import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from layers.build import ZIP_EPOCH, copy, size

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements/emr.lock"
SOURCES = {
    "hourwheel": ROOT / "layers/hourwheel/python/hourwheel",
    "hourwheel_pipeline": ROOT / "pipeline/hourwheel_pipeline",
    "pyspark_hourwheel": ROOT / "pipeline/pyspark_hourwheel",
}
LIBRARY, DEPENDENCIES = "hourwheel", "dependencies"

PYTHON = "3.11"
"""A version that EMR Serverless has and the library supports."""

PLATFORMS = ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")
"""Wheels for glibc 2.28 or older: EMR Serverless runs Amazon Linux 2023, which has glibc 2.34."""

CEILING_BYTES = 90_000_000
"""The most that the archives may have together: each process downloads and unpacks them before it begins."""

SERVICES = frozenset({"glue", "lakeformation", "logs", "s3", "sso", "sso-oidc", "sts"})
"""The services that the jobs call, and those that give credentials."""

_UNUSED = re.compile(
    "|".join(
        (
            r"bin",
            r".*\.pyi|.*\.pyx|.*\.pxd|.*/py\.typed|.*\.(h|hpp|cc|c|cpp|cmake)",
            r"(pyarrow|numpy|pandas|sqlalchemy|pyroaring)/(.*/)?(tests|testing/tests|_pyinstaller)",
            r"pyarrow/(include|src)",
            # Servers, a compiler of queries and formats that the jobs do not use: pyarrow works without them.
            r"pyarrow/(libarrow_flight|libarrow_python_flight|libgandiva|_flight|gandiva|_orc|_substrait)\..*",
            rf"botocore/data/(?!({'|'.join(sorted(SERVICES))})$)[^/]*(?<!\.json)(?<!\.json\.gz)",
            r"botocore/data/.*/(examples|waiters)-.*",
            r"pydantic/v1",
            r"[^/]*\.dist-info/(?!METADATA$|LICEN[CS]E|NOTICE|COPYING|licenses|entry_points\.txt$)[^/]*",
        )
    )
)


class PackageTooLarge(Exception):
    """The package has outgrown ``CEILING_BYTES``."""


def build(output: Path) -> list[Path]:
    """Packs both archives below ``output`` and returns their paths. Needs the package index or pip's cache if the lock
    has changed. Raises ``PackageTooLarge``."""
    output.mkdir(parents=True, exist_ok=True)
    dependencies, library = (output / f"{name}.tgz" for name in (DEPENDENCIES, LIBRARY))
    stamp, key = output / f"{DEPENDENCIES}.key", _inputs_digest()
    if not stamp.exists() or stamp.read_text() != key or not dependencies.exists():
        # A build that is cut off leaves no key, so the next one packs again.
        stamp.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            _install(Path(scratch, "installed"))
            copy(Path(scratch, "installed"), Path(scratch, "kept"), lambda path: not _UNUSED.fullmatch(path))
            pack(Path(scratch, "kept"), dependencies)
        stamp.write_text(key)
    with tempfile.TemporaryDirectory() as scratch:
        for package, source in SOURCES.items():
            copy(source, Path(scratch, package), lambda path: not path.endswith(".pyi"))
        pack(Path(scratch), library)
    archives = [dependencies, library]
    check(archives)
    return archives


def check(archives: list[Path]) -> None:
    """Raises ``PackageTooLarge`` if the archives together exceed ``CEILING_BYTES``."""
    total = sum(map(size, archives))
    if total > CEILING_BYTES:
        raise PackageTooLarge(f"the package has {total / 1e6:.1f} MB and may have {CEILING_BYTES / 1e6:.0f}")


def pack(folder: Path, archive: Path) -> None:
    """Packs the files below the folder in a fixed order, with fixed modes, owners and times."""
    partial = archive.with_suffix(".partial")
    with (
        partial.open("wb") as file,
        gzip.GzipFile("", "wb", 6, file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as entries,
    ):
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            entry.size, entry.mode, entry.mtime = path.stat().st_size, 0o644, ZIP_EPOCH
            with path.open("rb") as content:
                entries.addfile(entry, content)
    partial.replace(archive)


def _install(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
    command += ["--root-user-action", "ignore", "--no-deps", "--require-hashes", "--requirement", str(LOCK)]
    command += ["--only-binary", ":all:", "--target", str(folder), "--implementation", "cp"]
    command += ["--python-version", PYTHON, *(part for name in PLATFORMS for part in ("--platform", name))]
    subprocess.run(command, check=True)  # noqa: S603 - a list of arguments, no shell


def _inputs_digest() -> str:
    inputs = (LOCK.read_bytes(), Path(__file__).read_bytes())
    return hashlib.sha256(b"".join(hashlib.sha256(content).digest() for content in inputs)).hexdigest()


def main() -> int:
    parser = argparse.ArgumentParser(description="Packs what the jobs import on EMR Serverless.")
    parser.add_argument("--output", type=Path, default=ROOT / "build/pipeline")
    parser.add_argument(
        "--check", action="store_true", help="pack a second time elsewhere, and fail if the bytes differ"
    )
    options = parser.parse_args()
    archives = build(options.output)
    for archive in archives:
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        sys.stdout.write(f"{size(archive) / 1e6:6.2f} MB  {archive.name}, sha256 {digest}\n")
    if not options.check:
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        repeated = build(Path(scratch))
        differing = [
            first.name
            for first, second in zip(archives, repeated, strict=True)
            if first.read_bytes() != second.read_bytes()
        ]
    sys.stdout.write(f"packed again: {f'{differing} differ' if differing else 'the same'}\n")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
