"""Reads the packages of the locks."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[2]
PYTHON_LOCKS = tuple(sorted((ROOT / "requirements").glob("*.lock")))
NODE_LOCK = ROOT / "package-lock.json"

_PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)(?: ; ([^\\]+?))? *\\?$", re.MULTILINE)
_MODULES = "node_modules/"


@dataclass(frozen=True, order=True)
class Package:
    """A package of a lock. ``marker``: the condition of pip under which it is installed; empty for none."""

    ecosystem: str
    name: str
    version: str
    marker: str = ""

    @property
    def url(self) -> str:
        """Returns the package URL (purl)."""
        kind = {"PyPI": "pypi", "npm": "npm"}[self.ecosystem]
        return f"pkg:{kind}/{quote(self.name, safe='/')}@{quote(self.version)}"


def packages(lock: Path) -> list[Package]:
    """Returns the packages of a lock, sorted. Raises ``ValueError`` for a lock that pins nothing."""
    text = lock.read_text()
    found = sorted(set(_of_node(text) if lock.suffix == ".json" else _of_python(text)))
    if not found:
        raise ValueError(f"{lock.name} pins no package")
    return found


def every_package() -> list[Package]:
    """Returns the packages of all locks, each version once."""
    locks = (*PYTHON_LOCKS, NODE_LOCK)
    named = {(package.ecosystem, package.name, package.version) for lock in locks for package in packages(lock)}
    return [Package(*names) for names in sorted(named)]


def _of_python(text: str) -> Iterator[Package]:
    for name, version, marker in _PINNED.findall(text):
        yield Package("PyPI", name, version, marker.strip())


def _of_node(text: str) -> Iterator[Package]:
    for path, entry in json.loads(text)["packages"].items():
        if path:  # the first one is this repository
            yield Package("npm", path.rpartition(_MODULES)[2], entry["version"])
