"""``make audit``: asks OSV (https://osv.dev) for advisories on the packages of the locks, in one request.

0    no advisory is known
1    there are advisories: a line each, with the package and the id of the advisory
3    the source gave no answer, or one that cannot be read: nothing is known
"""

import argparse
import json
import sys
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any

from infra.supply.locks import Package, every_package

SOURCE = "https://api.osv.dev/v1/querybatch"
CLEAN, FOUND, UNKNOWN = 0, 1, 3
_SECONDS = 30


class NotKnown(Exception):
    """OSV did not answer. The message says why."""


def advisories(packages: Sequence[Package], source: str) -> list[tuple[Package, str]]:
    """Returns each package with the id of each of its advisories. Raises ``NotKnown``."""
    results = _query(packages, source).get("results")
    if not isinstance(results, list) or len(results) != len(packages):
        raise NotKnown(f"{source} has not answered for each package")
    found = []
    for package, result in zip(packages, results, strict=True):
        if "next_page_token" in result:
            raise NotKnown(f"{source} has more advisories for {package.name} than it tells at once")
        found += [(package, str(advisory["id"])) for advisory in result.get("vulns", ())]
    return found


def _query(packages: Sequence[Package], source: str) -> dict[str, Any]:
    queries = [
        {"package": {"name": package.name, "ecosystem": package.ecosystem}, "version": package.version}
        for package in packages
    ]
    request = urllib.request.Request(  # noqa: S310 - the operator names the source
        source, json.dumps({"queries": queries}).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 - the operator names the source
            document = json.load(answer)
    except (OSError, HTTPException, ValueError) as error:
        raise NotKnown(f"{source} does not answer: {error}") from error
    if not isinstance(document, dict):
        raise NotKnown(f"{source} does not answer with a document")
    return document


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Asks for advisories for what the locks pin.")
    parser.add_argument("--source", default=SOURCE, help="speaks OSV's protocol (default: %(default)s)")
    options = parser.parse_args(arguments)
    packages = every_package()
    try:
        found = advisories(packages, options.source)
    except NotKnown as error:
        sys.stderr.write(f"NOT AUDITED: {error}. Nothing is known about advisories for {len(packages)} packages.\n")
        return UNKNOWN
    for package, advisory in found:
        sys.stdout.write(f"{package.ecosystem} {package.name} {package.version}  {advisory}\n")
    sys.stdout.write(f"{len(packages)} packages, {len(found)} advisories\n")
    return FOUND if found else CLEAN


if __name__ == "__main__":
    sys.exit(main())
