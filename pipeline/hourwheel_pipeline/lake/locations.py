"""Opens the objects and files of archives and lakes by their location: a folder, or ``s3://bucket/prefix``."""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem, LocalFileSystem, S3FileSystem

from hourwheel.adapters.files import FileBlobs, key_of_file
from hourwheel.ports.storage import Blobs

_THREADS = 16  # they wait for storage


def on_s3(location: str) -> bool:
    return location.startswith("s3://")


def folder_of(location: str) -> Path:
    """Returns the folder that a path or a ``file:`` address names."""
    return Path(unquote(urlsplit(location).path) if location.startswith("file:") else location).absolute()


def blobs_at(location: str, region: str | None = None, endpoint_url: str | None = None) -> Blobs:
    """Opens the objects at a location. Call it in the process that reads: the result cannot be sent to another one."""
    if not on_s3(location):
        return FileBlobs(folder_of(location))
    # Imported here: botocore takes long to import, and a folder does not need it.
    from hourwheel.adapters.aws.s3 import S3Blobs, client

    parts = urlsplit(location)
    prefix = parts.path.strip("/")
    opened = partial(client, region=region, endpoint_url=endpoint_url)
    return S3Blobs(opened, parts.netloc, f"{prefix}/" if prefix else "")


def object_sizes(
    location: str, folder: str, region: str | None = None, endpoint_url: str | None = None
) -> dict[str, int]:
    """Returns the bytes of each object below a folder of the archive at a location, by its key, from one listing."""
    if on_s3(location):
        root = location.rstrip("/")
        files = Files(region, endpoint_url).below(f"{root}/{folder}")
        return {file.path[len(root) + 1 :]: file.bytes for file in files}
    root, sizes = str(folder_of(location)), dict[str, int]()
    # With the descriptor of its folder a file is looked up in half the time.
    for parent, _, names, descriptor in os.fwalk(f"{root}/{folder}"):
        below = parent[len(root) + 1 :]
        for name in names:
            if (key := key_of_file(name)) is not None:
                sizes[f"{below}/{key}"] = os.stat(name, dir_fd=descriptor).st_size
    return sizes


class FoundFile(NamedTuple):
    """A file of a lake. ``path`` is spelled as the tables name it."""

    path: str
    bytes: int
    modified_ms: int


class Files:
    """The files of a lake, which Spark and Iceberg write. They are no ``Blobs``: their names are plain paths."""

    def __init__(self, region: str | None = None, endpoint_url: str | None = None) -> None:
        self._region = region
        self._endpoint_url = endpoint_url

    def below(self, folder: str) -> list[FoundFile]:
        """Lists the files in the folder and its subfolders, in order; none if the folder does not exist."""
        system, path = self._opened(folder)
        start = "s3://" if on_s3(folder) else ""
        infos = system.get_file_info(FileSelector(path, recursive=True, allow_not_found=True))
        files = [
            FoundFile(start + info.path, info.size, (info.mtime_ns or 0) // 1_000_000) for info in infos if info.is_file
        ]
        return sorted(files)

    def read(self, path: str) -> bytes | None:
        """Returns the bytes of a small file; None if there is none."""
        system, inner = self._opened(path)
        try:
            with system.open_input_file(inner) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def rows(self, path: str) -> pa.Table:
        """Reads the rows of a Parquet file."""
        system, inner = self._opened(path)
        with system.open_input_file(inner) as file:
            return pq.ParquetFile(file).read()

    def parquet_fault(self, path: str, size: int, rows: int, *, deep: bool) -> str | None:
        """Checks a Parquet file against its size in bytes and its number of rows. Returns the fault; None for a sound
        file. With ``deep`` it reads the whole file, otherwise only the end."""
        system, inner = self._opened(path)
        try:
            with system.open_input_file(inner) as file:
                if file.size() != size:
                    return f"it has {file.size()} bytes and should have {size}"
                parquet = pq.ParquetFile(file)
                if parquet.metadata.num_rows != rows:
                    return f"it has {parquet.metadata.num_rows} rows and should have {rows}"
                for _ in parquet.iter_batches() if deep else ():
                    pass
        except FileNotFoundError:
            return "it is missing"
        except (pa.ArrowException, OSError) as error:
            return f"it cannot be read: {str(error).splitlines()[0]}"
        return None

    def write(self, path: str, data: bytes) -> None:
        """Writes a file, and replaces an existing one in one step: a reader finds the old one or the new one."""
        system, inner = self._opened(path)
        if on_s3(path):
            # S3 shows readers an object only once it is complete.
            with system.open_output_stream(inner) as file:
                file.write(data)
            return
        Path(inner).parent.mkdir(parents=True, exist_ok=True)
        unfinished = f"{inner}.{os.getpid()}.part"
        try:
            with system.open_output_stream(unfinished) as file:
                file.write(data)
            os.replace(unfinished, inner)
        finally:
            Path(unfinished).unlink(missing_ok=True)

    def delete(self, paths: Iterable[str]) -> None:
        """Removes files; a missing file is no error."""
        with ThreadPoolExecutor(_THREADS) as pool:
            for done in [pool.submit(self._delete, path) for path in paths]:
                done.result()

    def delete_folder(self, folder: str) -> None:
        """Removes a folder and its contents; a missing folder is no error."""
        system, path = self._opened(folder)
        try:
            system.delete_dir(path)
        except FileNotFoundError:
            return

    def _delete(self, path: str) -> None:
        system, inner = self._opened(path)
        try:
            system.delete_file(inner)
        except FileNotFoundError:
            return

    def _opened(self, path: str) -> tuple[FileSystem, str]:
        if not on_s3(path):
            return LocalFileSystem(), str(folder_of(path))
        return self._s3, path.removeprefix("s3://")

    @cached_property
    def _s3(self) -> S3FileSystem:
        return S3FileSystem(region=self._region, endpoint_override=self._endpoint_url)
