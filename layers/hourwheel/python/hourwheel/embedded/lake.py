"""Reads the lake of the data directory."""

from pathlib import Path


class LakeDirectory:
    """Implements ``LakeFiles`` for a folder of this machine, which need not exist."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, path: str) -> bytes | None:
        try:
            return (self._folder / path).read_bytes()
        except FileNotFoundError:
            return None
