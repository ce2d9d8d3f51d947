"""Resolves the references of the template as CloudFormation would."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aws_cdk import App

from app import synthesise
from infra.settings import PREFIX

ROOT = Path(__file__).parents[2]
CELL, REGION, ACCOUNT = "flights", "us-east-1", "000000000000"
PSEUDO = {"AWS::Partition": "aws", "AWS::Region": REGION, "AWS::AccountId": ACCOUNT, "AWS::URLSuffix": "amazonaws.com"}

_NAMED_IN_TEXT = re.compile(r"\$\{(!?)([^}]+)\}")


@dataclass
class Template:
    """The template of the cell ``CELL``. ``made``: the values of references to created resources, {logical id:
    {attribute: value}}, with ``Ref`` as an attribute. A reference to another resource cannot be resolved."""

    folder: Path
    made: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._resources: dict[str, Any] = json.loads(self._read("template"))["Resources"]

    def of_type(self, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Returns logical ids and resolved properties of the resources of a type such as ``Lambda::Function``."""
        for logical_id, resource in self._resources.items():
            if resource["Type"] == f"AWS::{kind}":
                yield logical_id, self.resolved(resource.get("Properties", {}))

    def properties(self, logical_id: str) -> dict[str, Any]:
        """Returns the resolved properties of one resource. Raises ``KeyError`` while a resource to which they refer is
        not created."""
        return dict(self.resolved(self._resources[logical_id].get("Properties", {})))

    def logical_ids(self, kind: str) -> list[str]:
        return [key for key, resource in self._resources.items() if resource["Type"] == f"AWS::{kind}"]

    def kinds(self) -> set[str]:
        return {resource["Type"].removeprefix("AWS::") for resource in self._resources.values()}

    def assets(self) -> dict[str, Path]:
        """Returns the folders to upload, by their key in the bucket of assets."""
        files = json.loads(self._read("assets"))["files"].values()
        zipped = (file for file in files if file["source"]["packaging"] == "zip")
        return {
            destination["objectKey"]: self.folder / file["source"]["path"]
            for file in zipped
            for destination in file["destinations"].values()
        }

    def resolved(self, value: Any) -> Any:
        match value:
            case {"Ref": str(name)}:
                return self._looked_up(name, "Ref")
            case {"Fn::GetAtt": [str(name), str(attribute)]}:
                return self._looked_up(name, attribute)
            case {"Fn::Join": [str(between), list(parts)]}:
                return between.join(map(self.resolved, parts))
            case {"Fn::Sub": str(text)}:
                return _NAMED_IN_TEXT.sub(self._substituted, text)
            case dict():
                unknown = [key for key in value if key.startswith("Fn::")]
                assert not unknown, f"the resolver of the tests does not know {unknown}"
                return {key: self.resolved(part) for key, part in value.items()}
            case list():
                return [self.resolved(part) for part in value]
        return value

    def _substituted(self, found: re.Match[str]) -> str:
        literal, name = found.groups()
        if literal:
            return f"${{{name}}}"
        logical_id, _, attribute = name.partition(".")
        return self._looked_up(logical_id, attribute or "Ref")

    def _looked_up(self, name: str, attribute: str) -> str:
        return PSEUDO.get(name) or self.made[name][attribute]

    def _read(self, kind: str) -> str:
        return (self.folder / f"{CELL}.{kind}.json").read_text()


def synthesised(folder: Path, settings: Mapping[str, str]) -> Template:
    """Synthesises the template in this process: a process of its own would first start Node, for ten seconds of CPU."""
    context = {f"{PREFIX}{name}": text for name, text in {"cell": CELL, **settings}.items()}
    synthesise(App(outdir=str(folder), context=context, analytics_reporting=False))
    return Template(folder)
