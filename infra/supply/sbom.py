"""``make sbom``: writes a bill of materials for each lock, in build/sbom, as CycloneDX 1.6 in JSON.

The same locks give the same bytes: a bill has no time and no serial number. A lock has the hashes of all files of a
package, of which one is installed, so a component has no hash here.
"""

import json
import sys
from pathlib import Path
from typing import Any

from hourwheel import __version__
from infra.supply.locks import NODE_LOCK, PYTHON_LOCKS, ROOT, Package, packages

OUTPUT = ROOT / "build/sbom"

PURPOSES = {
    "layer": "imported by the Lambda functions, beside the library",
    "emr": "imported by the jobs on EMR Serverless, beside the library",
    "pipeline": "installed with the extra 'pipeline', and for its tests",
    "dev": "installed to develop and test, with the library's own dependencies among it",
    "infra": "installed to deploy",
    "docs": "installed to make the site of the documentation",
    "peers": "installed to compare with other queues",
    "apps": "installed to test the integrations with their frameworks and databases",
    "changes": "installed to check commits, and to make the changelog",
    "console": "installed to test the console in a browser",
    "sources": "downloaded, not installed: the frameworks' own tests, which run on the integrations",
    "generator": "installed to test a client that is generated from the OpenAPI document",
    "spark-newest": "installed to test with the newest Spark",
    "package-lock": "Node packages: installed to deploy and test",
}


def bill(lock: Path) -> dict[str, Any]:
    name = lock.stem
    component = {
        "type": "application",
        "name": "hourwheel",
        "version": __version__,
        "bom-ref": f"hourwheel/{name}",
        "description": PURPOSES[name],
    }
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component},
        "components": [_component(package) for package in packages(lock)],
    }


def _component(package: Package) -> dict[str, Any]:
    marker = {"properties": [{"name": "hourwheel:marker", "value": package.marker}]} if package.marker else {}
    return {
        "type": "library",
        "name": package.name,
        "version": package.version,
        "purl": package.url,
        "bom-ref": f"{package.url}#{package.marker}" if package.marker else package.url,
        **marker,
    }


def main() -> int:
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for lock in (*PYTHON_LOCKS, NODE_LOCK):
        materials = bill(lock)
        path = OUTPUT / f"{lock.stem}.cdx.json"
        path.write_text(json.dumps(materials, indent=2) + "\n")
        sys.stdout.write(f"{len(materials['components']):4} packages  {path.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
