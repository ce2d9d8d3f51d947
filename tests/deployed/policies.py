"""Judges calls as IAM would, by the roles of the template."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .template import Template


@dataclass(frozen=True)
class Call:
    """A request of a function to a service. ``context``: its condition keys."""

    function: str
    action: str
    resource: str
    context: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Grant:
    """An action on a resource; both may have wildcards."""

    action: str
    resource: str
    conditions: Mapping[str, Mapping[str, Any]]

    def allows(self, call: Call) -> bool:
        return (
            _like(self.action.lower(), call.action.lower())
            and _like(self.resource, call.resource)
            and all(_holds(operator, keys, dict(call.context)) for operator, keys in self.conditions.items())
        )


def grants(template: Template, role: str) -> list[Grant]:
    """Returns the permissions of the role of this name. The policies of the template deny nothing, so no denial is
    judged."""
    found = []
    for _, policy in template.of_type("IAM::Policy"):
        if role not in policy["Roles"]:
            continue
        for statement in policy["PolicyDocument"]["Statement"]:
            assert statement["Effect"] == "Allow"
            found += _grants(statement)
    return found


def _grants(statement: Mapping[str, Any]) -> Iterator[Grant]:
    assert statement.keys() <= {"Effect", "Action", "Resource", "Condition", "Sid"}
    for action in _listed(statement["Action"]):
        for resource in _listed(statement["Resource"]):
            yield Grant(action, resource, statement.get("Condition", {}))


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _like(pattern: str, text: str) -> bool:
    parts = (".*" if part == "*" else "." if part == "?" else re.escape(part) for part in re.split(r"([*?])", pattern))
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


def _holds(operator: str, keys: Mapping[str, Any], context: Mapping[str, str]) -> bool:
    """Returns whether the condition holds for the request: a key that the request does not have matches nothing."""
    matches = {"StringEquals": str.__eq__, "StringLike": _like, "ArnLike": _like}[operator]
    return all(
        key in context and any(matches(enabled, context[key]) for enabled in _listed(values))
        for key, values in keys.items()
    )
