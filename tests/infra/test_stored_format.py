"""``make deploy`` deploys no functions that must not use the tables that are there."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from botocore.config import Config
from botocore.stub import Stubber

from hourwheel.adapters.aws.clients import make_client
from hourwheel.logs.formats import CURRENT, FORMAT, StoreFormat
from infra.settings import Settings, Wrong
from infra.stored_format import check_stored_formats, repair_stored_formats

LATER = StoreFormat(format=FORMAT + 1, least_reader=FORMAT + 1, written_by="0.2.0")


def tables(answer: Callable[[Stubber], None]) -> Any:
    """Returns a client of DynamoDB that has these answers, in order."""
    client = make_client("dynamodb", Config(), region="eu-west-1", endpoint_url="http://127.0.0.1:9")
    stub = Stubber(client)
    answer(stub)
    stub.activate()
    return client


def stated(stub: Stubber, found: StoreFormat | None, prefix: str = "hourwheel") -> None:
    stub.add_response("describe_table", {"Table": {}}, {"TableName": f"{prefix}-meta"})
    item = {} if found is None else {"Item": {"v": {"B": msgspec.msgpack.encode(found)}, "t": {"B": b"t"}}}
    stub.add_response("get_item", item)


def listed(stub: Stubber, *names: str) -> None:
    stub.add_response("query", {"Items": [{"sk": {"S": name}, "v": {"B": b"v"}, "t": {"B": b"t"}} for name in names]})


def test_without_tables_there_is_nothing_to_check() -> None:
    client = tables(lambda stub: stub.add_client_error("describe_table", "ResourceNotFoundException"))
    assert check_stored_formats(client, Settings()) == ""


@pytest.mark.parametrize("found", [None, CURRENT])
def test_tables_of_this_format_are_deployed_on(found: StoreFormat | None) -> None:
    def answer(stub: Stubber) -> None:
        stated(stub, found)
        listed(stub, "shards")

    assert check_stored_formats(tables(answer), Settings()) == ""


def test_tables_that_only_later_versions_read_are_refused() -> None:
    with pytest.raises(Wrong, match=r"^the deployment has format 4, of Hourwheel 0\.2\.0, and this version"):
        check_stored_formats(tables(lambda stub: stated(stub, LATER)), Settings())


def test_tables_of_before_the_first_release_are_refused() -> None:
    def answer(stub: Stubber) -> None:
        stated(stub, None)
        listed(stub, "orders")

    with pytest.raises(Wrong, match=r"^the deployment has format 2, and this version .* use the version that wrote it"):
        check_stored_formats(tables(answer), Settings())


def test_the_tables_of_other_cells_are_checked_too() -> None:
    def answer(stub: Stubber) -> None:
        stated(stub, CURRENT)
        listed(stub)
        stated(stub, LATER, "hourwheel.fast")

    with pytest.raises(Wrong, match=r"^cell fast has format 4"):
        check_stored_formats(tables(answer), Settings(cells={"fast": {}}))


def test_a_damaged_record_stops_the_deployment_and_names_its_repair() -> None:
    def answer(stub: Stubber) -> None:
        stub.add_response("describe_table", {"Table": {}})
        stub.add_response("get_item", {"Item": {"v": {"B": b"\xc1"}, "t": {"B": b"t"}}})

    with pytest.raises(Wrong, match="make repair-format"):
        check_stored_formats(tables(answer), Settings())


def test_what_cannot_be_read_is_told_and_does_not_stop_the_deployment() -> None:
    client = tables(lambda stub: stub.add_client_error("describe_table", "AccessDeniedException"))
    assert check_stored_formats(client, Settings()).startswith(
        "the format of the tables of the deployment is not known"
    )


def test_each_place_that_cannot_be_read_is_told() -> None:
    def answer(stub: Stubber) -> None:
        for _ in range(2):
            stub.add_client_error("describe_table", "AccessDeniedException")

    sentences = check_stored_formats(tables(answer), Settings(cells={"fast": {}})).splitlines()
    assert ["of the deployment is" in sentences[0], "of cell fast is" in sentences[1]] == [True, True]


def test_a_damaged_record_is_replaced() -> None:
    damaged = {"Item": {"v": {"B": b"\xc1"}, "t": {"B": b"t"}}}

    def answer(stub: Stubber) -> None:
        stub.add_response("get_item", damaged)
        stub.add_response("get_item", damaged)
        stub.add_response("put_item", {})
        stub.add_response("get_item", {"Item": {"v": {"B": msgspec.msgpack.encode(LATER)}, "t": {"B": b"t"}}})

    assert repair_stored_formats(tables(answer), Settings(cells={"fast": {}})) == ["the deployment"]
