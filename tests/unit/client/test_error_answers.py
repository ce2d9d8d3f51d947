"""The client raises the right error for an answer, and the error has its facts."""

import json
from typing import Any

import pytest

from hourwheel.client.errors import (
    AnswerError,
    BadRequest,
    Conflict,
    NotFound,
    ServerFault,
    ServerUnavailable,
    TooLarge,
    Unauthorized,
    from_answer,
)


def answered(status: int, document: Any = None, *, retry_after: str | None = None) -> AnswerError:
    body = document if isinstance(document, bytes) else json.dumps(document or {}).encode()
    return from_answer(status, body, retry_after=retry_after)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequest),
        (401, Unauthorized),
        (403, Unauthorized),
        (404, NotFound),
        (405, BadRequest),
        (408, ServerUnavailable),
        (409, Conflict),
        (413, TooLarge),
        (415, BadRequest),
        (429, ServerUnavailable),
        (500, ServerUnavailable),
        (502, ServerUnavailable),
        (503, ServerUnavailable),
        (504, ServerUnavailable),
        (507, ServerFault),
    ],
)
def test_the_status_chooses_the_error(status: int, kind: type[AnswerError]) -> None:
    error = answered(status, {"detail": "what was wrong"})
    assert (type(error), error.status, str(error)) == (kind, status, "what was wrong")


def test_an_error_has_the_facts_of_its_problem_document() -> None:
    document = {
        "type": "urn:hourwheel:field-invalid",
        "detail": "is missing",
        "field": "messages[3].body",
        "instance": "r-1",
    }
    error = answered(400, document)
    assert (error.slug, error.problem.field, error.problem.instance) == ("field-invalid", "messages[3].body", "r-1")


def test_the_status_of_the_answer_counts_not_that_of_the_document() -> None:
    assert answered(404, {"status": 200, "detail": "x"}).status == 404


def test_a_problem_without_a_detail_says_its_title_and_without_both_its_status() -> None:
    assert str(answered(409, {"title": "Every receipt is stale"})) == "Every receipt is stale"
    assert str(answered(409, {})) == "the server answered 409"


@pytest.mark.parametrize(
    "body", [b"<html>bad gateway</html>", b"\xff\xfe", b"[]", b""], ids=["HTML", "bytes", "list", "empty"]
)
def test_an_answer_that_is_no_problem_document_is_quoted(body: bytes) -> None:
    error = answered(502, body)
    assert isinstance(error, ServerUnavailable)
    assert str(error).startswith("the server answered 502: ")


def test_no_more_than_200_bytes_of_a_foreign_answer_are_quoted() -> None:
    assert len(str(answered(400, b"x" * 10_000))) < 250


@pytest.mark.parametrize("field", ["message", "Message"])
def test_a_refusal_of_the_gateway_for_want_of_a_signature_says_how_to_sign(field: str) -> None:
    error = answered(403, {field: "Forbidden"})
    assert (type(error), error.slug) == (Unauthorized, "forbidden")
    assert "the gateway answered 403: Forbidden; an API on AWS wants signed requests" in str(error)


def test_a_route_that_the_gateway_does_not_know_hints_at_the_stage() -> None:
    error = answered(404, {"message": "Not Found"})
    assert error.slug == "route-unknown"
    assert "stage of the API" in str(error)


def test_another_error_of_the_gateway_keeps_its_text() -> None:
    error = answered(503, {"message": "Service Unavailable"})
    assert (error.slug, str(error)) == ("gateway-error", "the gateway answered 503: Service Unavailable")


def test_a_throttled_request_certainly_had_no_effect_and_others_may_have_had_one() -> None:
    errors = {status: answered(status) for status in (408, 429, 500, 503)}
    assert {status: error.sent for status, error in errors.items() if isinstance(error, ServerUnavailable)} == {
        408: True,
        429: False,
        500: True,
        503: True,
    }


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("2", 2.0), ("0", 0.0), (None, 0.0), ("Sun, 22 Nov 2026 15:00:00 GMT", 0.0), ("-1", 0.0), ("", 0.0)],
)
def test_the_pause_that_the_server_asks_for_is_a_number_of_seconds(header: str | None, seconds: float) -> None:
    error = answered(503, retry_after=header)
    assert isinstance(error, ServerUnavailable)
    assert error.retry_after_seconds == seconds
