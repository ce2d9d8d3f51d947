"""``make tagged``: whether a tag may be released. It names the version of the code, and the changelog has one
section of it, which is not empty.

Exit status 1, with a sentence: it may not.
"""

import re
import sys
from collections.abc import Sequence

from hourwheel import __version__
from infra.supply.locks import ROOT

CHANGELOG = ROOT / "CHANGELOG.md"


def fault(tag: str, version: str, changelog: str) -> str:
    """Returns why the tag may not be released; empty if it may."""
    if tag != f"v{version}":
        return f"the tag {tag or '(none)'} is not v{version}, the version of the code"
    parts = re.split(r"^## ", changelog, flags=re.MULTILINE)
    sections = [part.splitlines() for part in parts if part.split(None, 1)[:1] == [version]]
    if len(sections) > 1:
        return f"the changelog has {len(sections)} sections '## {version}': leave one"
    if not sections or not re.fullmatch(r"\S+ \(\d{4}-\d\d-\d\d\)", sections[0][0]):
        return f"the changelog has no section '## {version}' with its date: see RELEASE.md"
    if all(not line or line.startswith("#") for line in sections[0][1:]):
        return f"the section '## {version}' of the changelog is empty"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    (tag,) = sys.argv[1:] if arguments is None else arguments
    if found := fault(tag, __version__, CHANGELOG.read_text()):
        sys.stderr.write(f"{found}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
