"""The annotation of a handler decides what it gets: the message, its body, or an object decoded from the body."""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec
import pydantic
import pytest

from hourwheel.client import Delivery, Message
from hourwheel.client.consuming.decoding import Misfit, arguments_of, decoder_of, handler_of
from hourwheel.client.consuming.lease_tracker import LeaseTracker
from hourwheel.client.encoding import encoded_body
from hourwheel.client.records.messages import Pull, Received

if TYPE_CHECKING:
    from tests.unit.client.broker import Broker as Unknown


class Model(pydantic.BaseModel):
    order: int
    due: date | None = pydantic.Field(default=None, alias="dueOn")


@pydantic.dataclasses.dataclass
class ModelData:
    order: int


class Order(msgspec.Struct):
    order: int
    tags: list[str] = []


@dataclass
class Plain:
    order: int


class Dictionary(TypedDict):
    order: int


@dataclass
class Holder:
    model: Model


class Opaque: ...


def delivery(body: str | bytes) -> Delivery:
    fields: dict[str, Any] = {"text": body} if isinstance(body, str) else {"data": body}
    when = datetime(2026, 11, 22, tzinfo=UTC)
    record = Received(id="o-1", produced_at=when, queue=0, offset=7, attempt=1, **fields)
    pull = Pull(receipt="r", queue=0, lease_until=when, messages=[record])
    (made,) = LeaseTracker(lease_seconds=30, linger_seconds=1).open(pull, 0.0, lambda *_: None)
    return made


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (Model, Model(order=7)),
        (ModelData, ModelData(order=7)),
        (Order, Order(7)),
        (Plain, Plain(7)),
        (Dictionary, {"order": 7}),
        (dict, {"order": 7}),
        (dict[str, int], {"order": 7}),
        (Order | None, Order(7)),
        (Model | ModelData, Model(order=7)),
        (str, '{"order": 7}'),
        (bytes, b'{"order": 7}'),
    ],
)
@pytest.mark.parametrize("body", ['{"order": 7}', b'{"order": 7}'])
def test_a_body_is_decoded_as_the_annotation_says(annotation: Any, expected: object, body: str | bytes) -> None:
    assert decoder_of(annotation)(body) == expected


def test_lists_and_models_inside_of_other_types_are_decoded() -> None:
    assert decoder_of(list[Model])('[{"order": 1}]') == [Model(order=1)]
    assert decoder_of(list)("[1]") == [1]
    assert decoder_of(Holder)('{"model": {"order": 1}}') == Holder(Model(order=1))
    assert decoder_of(int | None)("null") is None


@pytest.mark.parametrize(
    ("annotation", "body", "reason"),
    [
        (Order, '{"order": "x"}', "the body does not fit Order: order must be a whole number, got text"),
        (Order, "{}", "the body does not fit Order: order is missing"),
        (Order, '{"order": 1, "tags": [1]}', "the body does not fit Order: tags[0] must be text, got a whole number"),
        (Plain, "[]", "the body does not fit Plain: the body must be an object, got a list"),
        (Dictionary, '{"order": null}', "the body does not fit Dictionary: order must be a whole number, got null"),
        (dict, "paid", "the body does not fit dict: the body is not JSON in UTF-8 (byte 0)"),
        (dict, "", "the body does not fit dict: the body is empty"),
        (dict, b"\xff", "the body does not fit dict: the body is not JSON in UTF-8 (byte 0)"),
        (str, b"\xff", "the body is not text in UTF-8"),
        (
            Model,
            '{"order": "x", "dueOn": 1.5}',
            "the body does not fit Model: order: Input should be a valid integer, unable to parse string as an "
            "integer; dueOn: Datetimes provided to dates should have zero time - e.g. be exact dates",
        ),
        (Model, "paid", "the body does not fit Model: the body is not JSON in UTF-8 (line 1, column 1)"),
        (Model, b"\xff", "the body does not fit Model: the body is not JSON in UTF-8 (line 1, column 1)"),
    ],
)
def test_a_body_that_does_not_fit_is_refused_with_the_reason(annotation: Any, body: str | bytes, reason: str) -> None:
    with pytest.raises(Misfit) as refused:
        decoder_of(annotation)(body)
    assert str(refused.value) == reason


def test_a_reason_names_three_faults_and_no_value_of_the_body() -> None:
    with pytest.raises(Misfit, match=r"0: .*; 1: .*; 2: .*; and 7 more$") as refused:
        decoder_of(list[Model])(msgspec.json.encode(["secret"] * 10))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "annotation", [Opaque, list[Opaque], Order | Plain, Callable[[], int], Delivery | None, Holder | Opaque]
)
def test_a_type_that_json_has_no_form_for_is_refused_when_the_handler_is_set(annotation: Any) -> None:
    def bill(body) -> None: ...

    bill.__annotations__["body"] = annotation
    with pytest.raises(
        TypeError, match=r"the handler bill cannot take a body as .*; annotate it with a pydantic model"
    ):
        arguments_of(bill)


def test_an_annotation_that_only_the_type_checker_knows_is_refused() -> None:
    def bill(order: Unknown) -> None: ...

    with pytest.raises(
        TypeError, match=r"bill: the annotation Unknown cannot be read .*: define the type in the module"
    ):
        arguments_of(bill)


def test_a_handler_of_messages_is_called_as_it_is() -> None:
    def typed(message: Delivery) -> None: ...
    def checked(message: clients.Delivery) -> None: ...  # noqa: F821 - as imported for a type checker
    def anything(message: Any) -> None: ...
    def untyped(message) -> None: ...
    def collecting(message: Delivery, seen: list[str] | None = None) -> None: ...

    class Caller:
        def __call__(self, message: Delivery) -> None: ...

    for handler in (typed, checked, anything, untyped, collecting, Caller(), [].append, print):
        assert handler_of(handler) is handler


def test_a_second_parameter_gets_the_message() -> None:
    taken: list[object] = []

    def typed(order: Order, message: Delivery) -> None:
        taken.append((order, message.offset))

    def untyped(body, message) -> None:
        taken.append((body, message.offset))

    for handler in (typed, untyped):
        handler_of(handler)(delivery('{"order": 7}'))
    assert taken == [(Order(7), 7), ('{"order": 7}', 7)]


def test_a_method_and_an_object_may_be_typed_handlers() -> None:
    class Billing:
        def bill(self, order: Plain) -> object:
            return order

        def __call__(self, order: Plain) -> object:
            return order

    assert handler_of(Billing().bill)(delivery('{"order": 7}')) == Plain(7)
    assert handler_of(Billing())(delivery('{"order": 7}')) == Plain(7)


def test_a_third_parameter_without_a_default_is_refused() -> None:
    def bill(order: Order, message: Delivery, more: int) -> None: ...

    with pytest.raises(TypeError, match="give more a default"):
        arguments_of(bill)


def test_a_batch_handler_is_annotated_with_a_list() -> None:
    def bill(order: Order) -> None: ...

    with pytest.raises(TypeError, match=r"annotate its bodies as a list, such as list\[Order\]"):
        arguments_of(bill, batch=True)


@pytest.mark.parametrize("annotation", [typing.List, typing.Sequence])  # noqa: UP006 - older code spells it so
def test_a_batch_handler_may_leave_open_what_is_in_its_list(annotation: Any) -> None:
    def bill(orders: Any) -> None: ...

    bill.__annotations__ = {"orders": annotation}
    assert arguments_of(bill, batch=True) is None


def test_a_batch_handler_of_perhaps_a_list_is_refused_with_advice() -> None:
    def bill(orders: Any) -> None: ...

    bill.__annotations__ = {"orders": typing.Optional[list[Order]]}  # noqa: UP045 - older code spells it so
    with pytest.raises(TypeError, match="annotate its bodies as a list"):
        arguments_of(bill, batch=True)


@pytest.mark.parametrize(
    "body", [Model(order=7, dueOn=date(2026, 11, 22)), Order(7), Plain(7), ModelData(7), Holder(Model(order=7))]
)
def test_an_object_that_is_sent_comes_back_as_it_was(body: Any) -> None:
    sent = Message(body).body
    assert isinstance(sent, str)
    assert decoder_of(type(body))(sent) == body


def test_dictionaries_and_lists_are_sent_as_json_and_other_bodies_as_they_are() -> None:
    assert (
        Message({"order": Decimal("7.5"), "model": Model(order=1)}).body
        == '{"order":"7.5","model":{"order":1,"dueOn":null}}'
    )
    assert Message([1, Plain(2)]).body == '[1,{"order":2}]'
    assert Message(bytearray(b"paid")).body == b"paid"


def test_a_body_with_a_value_that_json_has_no_form_for_is_refused() -> None:
    with pytest.raises(TypeError, match="a body cannot contain Opaque: JSON has no form for it"):
        encoded_body({"order": Opaque()})
