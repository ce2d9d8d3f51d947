"""Builds the OpenAPI document."""

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec import inspect as types

from hourwheel import __version__
from hourwheel.api.problems import TITLES
from hourwheel.api.routes import ROUTES, HttpRoute
from hourwheel.client import Api
from hourwheel.model.fields import MAX_QUEUES, NAME_PATTERN
from hourwheel.model.settings import declared, without_links
from layers.openapi.examples import EXAMPLES
from layers.openapi.operations import OPERATIONS, Operation
from layers.openapi.tags import TAGS, tag_of

_REFERENCE = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"\{(\w+)\}")

_NAME = {"type": "string", "minLength": 1, "maxLength": 100, "pattern": f"^{NAME_PATTERN}$"}
_TEXT = {"type": "string", "minLength": 1}
_PATH_SCHEMAS: dict[str, dict[str, Any]] = {
    "subject": _NAME,
    "group": _NAME,
    "consumer": _NAME,
    "cell": {**_NAME, "maxLength": 30},
    "queue": {"type": "integer", "minimum": 0, "maximum": MAX_QUEUES - 1},
}
"""Schemas of the parameters of paths; the others are ids, texts that the server has made."""

_STATUSES = {
    "400": "The request is wrong: fix it",
    "401": "A token is missing or wrong",
    "403": "The token, or the identity on AWS, may not make this call",
    "404": "The named thing does not exist",
    "409": "The request contradicts stored data",
    "413": "Something is over its limit",
    "429": "Too many requests: wait",
    "500": "A fault of the server",
    "503": "The server or its storage is unavailable: send the request again",
    "507": "No room is left on a volume of the server",
}

_DESCRIPTION = (
    "The HTTP API of Hourwheel, a message queue with delays. Errors are problem documents (RFC 9457) with a stable "
    "`type`. Produce, pull and settle also speak msgpack. The documentation says what schemas cannot: which "
    "fields exclude each other, and what holds after each call."
)


def document() -> dict[str, Any]:
    """Returns the OpenAPI document. Raises ``KeyError`` for a route that ``OPERATIONS`` lacks."""
    answers = [kind for call in OPERATIONS.values() for kind in (call.answer, call.partly)]
    kinds = [kind for kind in (*answers, *(route.body for route in ROUTES)) if _is_struct(kind)]
    _, schemas = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    for kind in _all_structs(kinds):
        _order_choices(schemas[kind.__name__], kind)
        _mark_times(schemas[kind.__name__], kind)
        _mark_settings(schemas[kind.__name__], kind)
    schemas["Problem"] = _problem()
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.template, {})[route.method.lower()] = _operation(route, OPERATIONS[route.call])
    return {
        "openapi": "3.1.0",
        "info": {"title": "Hourwheel", "version": __version__, "description": _DESCRIPTION},
        "servers": [{"url": "http://127.0.0.1:7420"}],
        "security": [{}, {"token": []}],
        "tags": [{"name": name, "description": told} for name, told in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": {name: _described(schemas[name]) for name in sorted(schemas)},
            "responses": {f"Problem{status}": _problem_response(text) for status, text in _STATUSES.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def text() -> str:
    """Returns the document as text."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


def _operation(route: HttpRoute, operation: Operation) -> dict[str, Any]:
    described_call: dict[str, Any] = {
        "operationId": route.call,
        "tags": [tag_of(route.call)],
        "summary": _summary(route.call),
    }
    example = EXAMPLES.get(route.call)
    parameters = [_path_parameter(name) for name in _PARAMETER.findall(route.template)]
    if route.parameters is not None:
        parameters += _query_parameters(route.parameters)
    if parameters:
        described_call["parameters"] = parameters
    if route.body is not None:
        described_call["requestBody"] = {
            "required": route.needs_body,
            "content": _json(_schema_of(route.body), example and example.request),
        }
    described_call["responses"] = {
        **_success(operation, example and example.answer),
        **{status: {"$ref": f"#/components/responses/Problem{status}"} for status in _STATUSES},
    }
    return described_call


def _success(operation: Operation, example: dict[str, Any] | None) -> dict[str, Any]:
    if operation.answer is None:
        done: dict[str, Any] = {"204": {"description": "Done"}}
        if operation.partly is not None:
            done["200"] = {"description": "Done in part", "content": _json(_schema_of(operation.partly))}
        return done
    success: dict[str, Any] = {"description": "Done", "content": _json(_schema_of(operation.answer), example)}
    if operation.links:
        success["links"] = {name: {"operationId": name, **link} for name, link in operation.links.items()}
    return {"200": success}


def _json(schema: dict[str, Any], example: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"application/json": {"schema": schema} | ({} if example is None else {"example": example})}


def _schema_of(kind: Any) -> dict[str, Any]:
    if _is_struct(kind):
        return {"$ref": _REFERENCE.format(name=kind.__name__)}
    return {"type": "object"}


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": _PATH_SCHEMAS.get(name, _TEXT)}


def _query_parameters(query: type[msgspec.Struct]) -> list[dict[str, Any]]:
    _, schemas = msgspec.json.schema_components([query])
    _order_choices(schemas[query.__name__], query)
    properties = schemas[query.__name__]["properties"]
    return [{"name": name, "in": "query", "schema": _tidy(_not_null(schema))} for name, schema in properties.items()]


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema of a parameter without null: a caller leaves such a parameter out."""
    (kind,) = [option for option in schema.get("anyOf", [schema]) if option.get("type") != "null"]
    return dict(kind)


def _problem() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "A problem document (RFC 9457). `field` is the JSON path of the culprit.",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {"type": "string", "enum": [f"urn:hourwheel:{slug}" for slug in sorted(TITLES)]},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "instance": {"type": "string"},
            "field": {"type": "string"},
            "results": {"type": "array", "items": {"$ref": _REFERENCE.format(name="Settled")}},
        },
    }


def _problem_response(description: str) -> dict[str, Any]:
    schema = {"$ref": _REFERENCE.format(name="Problem")}
    return {"description": description, "content": {"application/problem+json": {"schema": schema}}}


def _summary(name: str) -> str:
    """Returns the first sentence about the method of the client."""
    if name == "openapi":
        return "Returns this document."
    words = " ".join((inspect.getdoc(getattr(Api, name)) or "").split("\n\n")[0].split())
    return _plain(re.split(r"(?<=\.) ", words)[0])


def _plain(prose: str) -> str:
    return prose.replace("``", "`")


def _described(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns the schema with a description of one paragraph, without the examples of the client."""
    described = {name: _tidy(value) for name, value in schema.items() if name not in {"title", "description"}}
    if "description" not in schema:
        return described
    first = inspect.cleandoc(schema["description"]).split("\n\n")[0]
    return {"description": _plain(" ".join(first.split())), **described}


def _tidy(part: Any) -> Any:
    """Returns the part without titles, and without null as a default: the absence of a field says as much."""
    if isinstance(part, list):
        return [_tidy(element) for element in part]
    if not isinstance(part, dict):
        return part
    dull = {("default", None)} | ({("title", part["title"])} if isinstance(part.get("title"), str) else set())
    return _typed(part) | {
        name: _tidy(value)
        for name, value in part.items()
        if isinstance(value, dict | list) or (name, value) not in dull
    }


def _typed(part: dict[str, Any]) -> dict[str, Any]:
    """Returns the type of the values of an enumeration, which msgspec leaves out and generators need."""
    values = part.get("enum")
    return {"type": "boolean" if values == [True] else "string"} if isinstance(values, list) else {}


def _order_choices(schema: dict[str, Any], kind: type[msgspec.Struct]) -> None:
    """Orders the values of enumerations as their types declare them. msgspec sorts them by the alphabet."""
    for field in msgspec.structs.fields(kind):
        values = _choices(field.type)
        for enumeration in _enumerations(schema["properties"][field.encode_name]):
            enumeration.sort(key=values.index)


def _choices(kind: Any) -> list[Any]:
    """Returns the values of the choices in a type, in the order of their declaration."""
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return [value for part in get_args(kind) for value in _choices(part)]


def _enumerations(part: Any) -> Iterator[list[Any]]:
    """Yields the values of each enumeration in a part of a schema."""
    below = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for name, value in below:
        if name == "enum":
            yield value
        else:
            yield from _enumerations(value)


def _mark_times(schema: dict[str, Any], kind: type[msgspec.Struct]) -> None:
    """Adds the format ``date-time`` to the schemas of times. msgspec adds it only where a time must have a zone."""
    struct = types.type_info(kind)
    assert isinstance(struct, types.StructType)
    for field in struct.fields:
        parts = field.type.types if isinstance(field.type, types.UnionType) else (field.type,)
        if any(isinstance(part, types.DateTimeType) for part in parts):
            shown = schema["properties"][field.encode_name]
            for option in shown.get("anyOf", [shown]):
                if option.get("type") == "string":
                    option["format"] = "date-time"


def _mark_settings(schema: dict[str, Any], kind: type[msgspec.Struct]) -> None:
    """Describes the settings in an answer, each of which a server sends, so that none has a default."""
    for field in declared(kind):
        shown = schema["properties"][field.name]
        shown.pop("default", None)
        shown.setdefault("description", without_links(field.setting.text))
        schema["required"] = [*dict.fromkeys((*schema["required"], field.name))]


def _all_structs(kinds: list[Any]) -> list[type[msgspec.Struct]]:
    """Returns the structs, and the structs in their fields at any depth."""
    waiting: list[Any] = [types.type_info(kind) for kind in kinds]
    structs: dict[type, None] = {}
    seen: set[int] = set()
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            waiting.extend(part)
        elif isinstance(part, types.Type | types.Field) and id(part) not in seen:
            seen.add(id(part))
            if isinstance(part, types.StructType):
                structs[part.cls] = None
            waiting.extend(getattr(part, name) for name in part.__struct_fields__)
    return list(structs)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
