"""Decodes bodies as the annotation of a handler says.

Both kinds of consumers use this module, which has no threads and does no input or output. They call ``arguments_of``
when a handler is set, and get the arguments for each message from ``HandlerArguments``.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints

import msgspec

from hourwheel.client.consuming.delivery import Delivery
from hourwheel.client.encoding import is_dataclass, is_pydantic, title_of
from hourwheel.client.errors import Reject
from hourwheel.wire.misfits import not_json, of_msgspec

Decode: TypeAlias = Callable[[str | bytes], Any]
"""Returns the decoded body. Raises ``Misfit``."""

SESSION = "session"
"""The parameter by which a handler takes the session of its idempotency store."""

_MOST_FAULTS = 3  # three faults say what is wrong; a list of every field of a large body hides it
_REASON_CHARACTERS = 300  # the ``detail`` of a dead letter: a settlement has 32 KB for the details of all its messages
_UNTYPED = (inspect.Parameter.empty, Any, object)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Misfit(Reject):
    """Says that a body does not fit the annotation of its handler. The message becomes a dead letter at once."""


class HandlerArguments(NamedTuple):
    """Says with which arguments a handler is called. ``decode`` makes the body that it takes; without it the handler
    takes the message in place of the body."""

    decode: Decode | None
    with_message: bool
    with_session: bool

    def of(self, message: Delivery) -> tuple[Any, ...]:
        """Returns the positional arguments for a message. Raises ``Misfit`` where the body does not fit."""
        if self.decode is None:
            return (message,)
        body = self.decode(message.body)
        return (body, message) if self.with_message else (body,)

    def of_batch(self, messages: Sequence[Delivery]) -> "BatchArguments":
        """Returns the arguments for the messages whose bodies fit, and apart from them the other messages."""
        if self.decode is None:
            return BatchArguments((list(messages),), list(messages), [])
        bodies: list[Any] = []
        fitting: list[Delivery] = []
        misfits: list[tuple[Delivery, Misfit]] = []
        for message in messages:
            try:
                bodies.append(self.decode(message.body))
                fitting.append(message)
            except Misfit as error:
                misfits.append((message, error))
        return BatchArguments((bodies, list(fitting)) if self.with_message else (bodies,), fitting, misfits)


class BatchArguments(NamedTuple):
    positional: tuple[Any, ...]
    fitting: list[Delivery]
    misfits: list[tuple[Delivery, Misfit]]


def check_runs(function: Callable[..., object]) -> None:
    """Raises ``TypeError`` for a coroutine or generator function. A call of it runs nothing, and its messages would be
    acknowledged unhandled."""
    if _is_coroutine_function(function):
        raise TypeError(f"{_named(function)} is asynchronous: use AsyncConsumer, or a handler without async")
    for called in (function, type(function).__call__):
        if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            raise TypeError(
                f"{_named(function)} is a generator function, which does not run when it is called: leave out yield"
            )


def check_awaitable(function: Callable[..., object]) -> None:
    """Raises ``TypeError`` for a handler that is not a coroutine function. It would handle each message, which would be
    retried nevertheless, because the result cannot be awaited. For a wrapper, the wrapped function counts."""
    if not (_is_coroutine_function(function) or _is_coroutine_function(inspect.unwrap(function))):
        raise TypeError(f"{_named(function)} is no coroutine function: write async def, or use Consumer")


def _is_coroutine_function(function: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def arguments_of(function: Callable[..., object], *, batch: bool = False) -> HandlerArguments | None:
    """Returns how to call a handler; None if it takes the message, or the list of messages, and nothing else.

    A handler takes the body in place of the message if its first parameter has an annotation other than ``Delivery``,
    or if it has a second parameter, which then takes the message. Raises ``TypeError`` for an annotation into which no
    body can be decoded.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a function in C without a signature
        return None
    with_session = SESSION in parameters
    taken = [parameter for name, parameter in parameters.items() if name != SESSION and parameter.kind in _POSITIONAL]
    required = _required(taken[1:], function)
    annotation = _body_annotation(taken[0], function, batch=batch) if taken else inspect.Parameter.empty
    typed = annotation is not inspect.Parameter.empty
    if typed or required:
        decode = decoder_of(annotation, _named(function)) if typed else _as_sent
        return HandlerArguments(decode, bool(required), with_session)
    return HandlerArguments(None, False, True) if with_session else None


def _body_annotation(parameter: inspect.Parameter, function: Callable[..., object], *, batch: bool) -> Any:
    """Returns the type of a body, if the annotation of the parameter tells one, otherwise ``Parameter.empty``."""
    annotation = _resolved(parameter.annotation, function)
    if batch:
        annotation = _member(annotation, function)
    return inspect.Parameter.empty if annotation in _UNTYPED or _is_delivery(annotation) else annotation


def _required(following: Sequence[inspect.Parameter], function: Callable[..., object]) -> list[inspect.Parameter]:
    """Returns the parameters without a default; raises ``TypeError`` for more than the one that takes the message."""
    required = [parameter for parameter in following if parameter.default is inspect.Parameter.empty]
    if len(required) > 1:
        more = ", ".join(parameter.name for parameter in required[1:])
        raise TypeError(
            f"{_named(function)} gets two arguments, the body and the message: give {more} a default, or leave it out"
        )
    return required


def handler_of(function: Callable[..., object]) -> Callable[[Delivery], object]:
    """Returns a function that calls the handler for a message; the handler itself if it takes the message alone."""
    arguments = arguments_of(function)
    if arguments is None:
        return function
    takes = arguments.of

    def handle(message: Delivery) -> object:
        return function(*takes(message))

    return handle


def batch_handler_of(
    function: Callable[..., object], reject: Callable[[Delivery, Misfit], object]
) -> Callable[[list[Delivery]], object]:
    """Returns a function that calls the batch handler for a list of messages, and passes the messages whose bodies do
    not fit to ``reject``."""
    arguments = arguments_of(function, batch=True)
    if arguments is None:
        return function
    takes = arguments.of_batch

    def handle(messages: list[Delivery]) -> object:
        taken = takes(messages)
        for message, error in taken.misfits:
            reject(message, error)
        return function(*taken.positional) if taken.fitting else None

    return handle


def decoder_of(annotation: Any, handler: str = "the handler") -> Decode:
    """Returns the decoder of bodies for an annotation. Handlers get ``bytes`` and ``str`` as they were sent, and other
    types decoded from JSON. Raises ``TypeError`` for a type into which JSON cannot be decoded."""
    if annotation is bytes:
        return _as_bytes
    if annotation is str:
        return _as_text
    if any(map(is_pydantic, _parts(annotation))):
        return _pydantic_decoder(annotation, handler)
    try:
        decoder = msgspec.json.Decoder(annotation)
        classes = list(_classes(annotation))
    except TypeError as error:
        raise _unsupported(annotation, handler, str(error)) from None
    if any(map(is_pydantic, classes)):
        return _pydantic_decoder(annotation, handler)
    if unknown := next((member for member in classes if not is_dataclass(member)), None):
        raise _unsupported(annotation, handler, f"JSON has no form for {title_of(unknown)}")
    return _json_decoder(decoder, title_of(annotation))


def _as_sent(body: str | bytes) -> str | bytes:
    return body


def _as_bytes(body: str | bytes) -> bytes:
    return body.encode() if isinstance(body, str) else body


def _as_text(body: str | bytes) -> str:
    if isinstance(body, str):
        return body
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise Misfit("the body is not text in UTF-8") from None


def _json_decoder(decoder: msgspec.json.Decoder[Any], title: str) -> Decode:
    def decode(body: str | bytes) -> Any:
        try:
            return decoder.decode(body)
        except msgspec.ValidationError as error:
            raise _misfit(title, [of_msgspec(str(error))]) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _misfit(title, [_no_json(body, str(error))]) from None

    return decode


def _pydantic_decoder(annotation: Any, handler: str) -> Decode:
    # Imported here: the client does not need pydantic, and a handler that names a model has loaded it.
    from pydantic import TypeAdapter, ValidationError
    from pydantic.errors import PydanticUserError

    try:
        validate = TypeAdapter(annotation).validate_json
    except PydanticUserError as error:
        raise _unsupported(annotation, handler, error.message.partition("\n")[0]) from None
    title = title_of(annotation)

    def decode(body: str | bytes) -> Any:
        try:
            return validate(body)
        except ValidationError as error:
            # Without the input: more people may read the reason of a dead letter than its body.
            faults = error.errors(include_url=False, include_input=False)
            raise _misfit(title, [_pydantic_fault(fault, body) for fault in faults]) from None

    return decode


def _pydantic_fault(fault: Any, body: str | bytes) -> str:
    if fault["type"] == "json_invalid":
        return _no_json(body, fault["msg"])
    where = ".".join(map(str, fault["loc"])) or "the body"
    return f"{where}: {fault['msg']}"


def _no_json(body: str | bytes, reason: str) -> str:
    return str(not_json(body.encode() if isinstance(body, str) else body, reason)).partition(": ")[0]


def _misfit(title: str, faults: Sequence[str]) -> Misfit:
    more = len(faults) - _MOST_FAULTS
    text = "; ".join(faults[:_MOST_FAULTS]) + (f"; and {more} more" if more > 0 else "")
    return Misfit(f"the body does not fit {title}: {text}"[:_REASON_CHARACTERS])


def _unsupported(annotation: Any, handler: str, reason: str) -> TypeError:
    return TypeError(
        f"{handler} cannot take a body as {title_of(annotation)}: {reason}; annotate it with a pydantic model, a "
        "msgspec struct, a dataclass, a TypedDict, dict, list, str or bytes, or with Delivery for the message itself"
    )


def _resolved(annotation: Any, function: Callable[..., object]) -> Any:
    """Returns the annotation of a parameter, evaluated if it is written as text."""
    if annotation in _UNTYPED:
        return annotation

    # ``get_type_hints`` of the handler would fail for a text of another parameter that cannot be evaluated.
    def probe() -> None: ...

    probe.__annotations__ = {"body": annotation}
    target = inspect.unwrap(function)
    if not inspect.isfunction(target):
        target = getattr(target, "__func__", None) or getattr(target, "func", None) or type(target).__call__
    try:
        hints = get_type_hints(
            probe, globalns=getattr(target, "__globals__", {}), localns=dict(_enclosed(target)), include_extras=True
        )
    except NameError as error:
        if "Delivery" in re.findall(r"\w+", str(annotation)):  # imported for the type checker only
            return Delivery
        raise TypeError(
            f"{_named(function)}: the annotation {annotation} cannot be read ({error}): define the type in the module, "
            "and import it when the program runs, not only for the type checker"
        ) from None
    return hints["body"]


def _enclosed(function: Any) -> Iterator[tuple[str, Any]]:
    """Yields the variables of enclosing functions that a function uses."""
    names = function.__code__.co_freevars if inspect.isfunction(function) else ()
    for name, cell in zip(names, getattr(function, "__closure__", None) or (), strict=True):
        with suppress(ValueError):  # not assigned yet
            yield name, cell.cell_contents


def _member(annotation: Any, function: Callable[..., object]) -> Any:
    """Returns the type of one body, for the annotation of a list of bodies."""
    if annotation in (*_UNTYPED, list, Sequence, Delivery):
        return inspect.Parameter.empty
    origin = get_origin(annotation)
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return next(iter(get_args(annotation)), inspect.Parameter.empty)
    raise TypeError(f"{_named(function)} handles batches: annotate its bodies as a list, such as list[Order]")


def _is_delivery(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Delivery)


def _parts(annotation: Any) -> Iterator[Any]:
    """Yields the annotation and all its arguments: of ``list[Order]`` also ``Order``."""
    yield annotation
    for part in get_args(annotation):
        yield from _parts(part)


def _classes(annotation: Any) -> Iterator[type]:
    """Yields the classes in a type, at any depth, that msgspec does not define itself."""
    from msgspec import inspect as types  # imported only for handlers with an annotation

    waiting: list[Any] = [types.type_info(annotation)]
    seen: set[int] = set()
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            waiting.extend(part)
        elif isinstance(part, types.Type | types.Field) and id(part) not in seen:
            seen.add(id(part))
            if isinstance(part, types.CustomType | types.DataclassType):
                yield part.cls
            waiting.extend(getattr(part, name) for name in part.__struct_fields__)


def _named(function: Callable[..., object]) -> str:
    return f"the handler {getattr(function, '__name__', type(function).__name__)}"
