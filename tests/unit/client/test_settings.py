"""The methods that change settings take each setting that the records declare, and say what it is."""

import inspect
from typing import Any, get_type_hints

import pytest
from msgspec import Struct

from hourwheel.client import Api
from hourwheel.client.calls.groups import GroupCalls
from hourwheel.client.calls.subjects import SubjectCalls
from hourwheel.model.group_settings import AllGroupSettings
from hourwheel.model.settings import declared
from hourwheel.model.subject_settings import SubjectSettings

METHODS = {"put_group": AllGroupSettings, "put_subject": SubjectSettings}


@pytest.mark.parametrize(("name", "record"), METHODS.items(), ids=METHODS)
def test_a_method_takes_each_setting_with_its_type(name: str, record: type[Struct]) -> None:
    method = getattr(Api, name)
    hints, parameters = get_type_hints(method), inspect.signature(method).parameters
    for field in declared(record):
        assert hints[field.name] == field.kind | None
        assert parameters[field.name].default is None


@pytest.mark.parametrize(("name", "record"), METHODS.items(), ids=METHODS)
def test_the_docstring_of_a_method_names_each_setting_and_its_bounds(name: str, record: type[Struct]) -> None:
    told = inspect.getdoc(getattr(Api, name)) or ""
    assert [field.name for field in declared(record) if f"``{field.name}``" not in told] == []
    bounds = {bound for field in declared(record) for bound in (field.setting.least, field.setting.most)}
    assert [bound for bound in bounds if bound is not None and f"{bound:,}" not in told] == []


class SentBodies(GroupCalls, SubjectCalls):
    """Keeps the body of each request, and sends nothing."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self._http: Any = self

    def call(self, *_: object, body: dict[str, Any]) -> None:
        self.bodies.append(body)


def test_a_method_sends_each_setting() -> None:
    calls = SentBodies()
    group, subject = (
        {field.name: _changed(field.default, field.choices) for field in declared(record)}
        for record in METHODS.values()
    )
    calls.put_group("orders", "billing", **group)
    calls.put_subject("orders", **subject)
    assert calls.bodies == [group, subject]


def _changed(default: Any, choices: tuple[str, ...]) -> Any:
    """Returns a value that is not the default."""
    if choices:
        return next(choice for choice in choices if choice != default)
    return not default if isinstance(default, bool) else type(default)(default + 1)
