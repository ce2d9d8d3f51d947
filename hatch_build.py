"""Makes the description of the package: README.md, whose links lead to the repository at the version that is built.

A package index shows the description on a page of its own, where a link that is relative to the repository is dead.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?!https?:|mailto:|#)(?P<path>[^)\s]+)\)")
_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)


class Description(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        version = _VERSION.search((root / self.config["version"]).read_text(encoding="utf-8"))
        if not version:
            raise ValueError(f"{self.config['version']} names no version")
        readme = (root / "README.md").read_text(encoding="utf-8")
        text = described(readme, metadata["urls"]["Homepage"], f"v{version[1]}")
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def described(readme: str, repository: str, tag: str) -> str:
    """Returns the page with links into the repository at a tag."""

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link["image"] else "blob"  # a page of the repository around a picture is no picture
        return f"{link['image']}[{link['text']}]({repository}/{kind}/{tag}/{link['path']})"

    return _LINK.sub(absolute, readme)
