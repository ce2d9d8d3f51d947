"""``make tagged``: whether a tag may be released. It names the version of the code, and the changelog has its section.

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
    if not re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", changelog, re.MULTILINE):
        return f"the changelog has no section '## {version}' with its date: make changelog"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    (tag,) = sys.argv[1:] if arguments is None else arguments
    if found := fault(tag, __version__, CHANGELOG.read_text()):
        sys.stderr.write(f"{found}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
