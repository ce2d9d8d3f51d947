"""Lists the pages of the console, as the scene of these tests fills them."""

from typing import Any, NamedTuple

from playwright.sync_api import Page, expect

from tests.console.pages import Visits
from tests.integration.process import Server


class Place(NamedTuple):
    """A page: its address behind ``/console/``, its heading, and a text that it shows once it has read."""

    address: str
    heading: str
    text: str


PAGES = {
    "overview": Place("#/", "Overview", "orders"),
    "subject": Place("#/subjects/orders", "orders", "billing"),
    "browse": Place("#/subjects/orders/browse?queue=0", "Messages of orders", "order-1"),
    "trace": Place("#/subjects/orders/trace?id=0:0", "Trace of a message", "billing"),
    "group": Place("#/subjects/orders/groups/billing", "billing", "billing-2"),
    "dead": Place("#/subjects/orders/groups/billing/dead", "Dead letters", "the card was refused"),
    "delayed": Place("#/delayed?subject=reminders", "Delayed messages", "scheduled_id"),
    "cells": Place("#/cells?subject=orders", "Cells", "from offset 0 on in home"),
    "pipeline": Place("#/pipeline", "Pipeline", "manifests"),
}


def address(server: Server, place: str = "#/") -> str:
    return f"http://127.0.0.1:{server.port}/console/{place}"


def shown(visits: Visits, server: Server, name: str, **how: Any) -> Page:
    """Opens a page of ``PAGES``, and returns it once it shows its data."""
    place = PAGES[name]
    page = visits.open(address(server, place.address), **how)
    expect(page.get_by_role("heading", level=1)).to_contain_text(place.heading)
    expect(page.get_by_role("main")).to_contain_text(place.text)
    page.wait_for_load_state("networkidle")  # parts of a page read for themselves
    return page
