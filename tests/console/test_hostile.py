"""Messages and names that try to become markup, commands or properties are shown as the text that they are."""

import pytest
from playwright.sync_api import Page, expect

from tests.console import scene
from tests.console.pages import Visits
from tests.console.routes import address
from tests.integration.process import Server


@pytest.fixture(scope="module")
def hostile(server: Server) -> Server:
    with server.connect() as connection:
        scene.fill_hostile(connection)
    return server


def check_harmless(page: Page) -> None:
    assert page.evaluate("window.stolen") is None
    assert page.locator("main img, main script, main b").count() == 0


def test_dead_letters_show_markup_as_text(hostile: Server, visits: Visits) -> None:
    page = visits.open(address(hostile, "#/subjects/hostile/groups/victims/dead"))
    main = page.get_by_role("main")
    expect(main).to_contain_text("<img src=x onerror=")
    for name, text in {
        "mean-1": scene.HOSTILE,
        "mean-json": "<script>window.stolen=1</script>",
        "escapes": "␛[31mred",
        "binary": "00 01 02 03 ff fe",
    }.items():
        page.get_by_role("button", name=name, exact=True).click()
        expect(page.get_by_role("heading", name=f"Message {name}")).to_be_visible()
        expect(main).to_contain_text(text)
        assert not set("\x1b\x07\u202e").intersection(main.inner_text())
        check_harmless(page)


def test_messages_of_a_queue_show_markup_as_text(hostile: Server, visits: Visits) -> None:
    page = visits.open(address(hostile, "#/subjects/hostile/browse?by=offset&queue=0&at=0"))
    expect(page.get_by_role("main")).to_contain_text("mean-1")
    check_harmless(page)


@pytest.mark.parametrize("name", scene.STRANGE_NAMES)
def test_every_allowed_name_has_its_pages(hostile: Server, visits: Visits, name: str) -> None:
    page = visits.open(address(hostile))
    page.get_by_role("link", name=name, exact=True).click()
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text(name)
    groups = page.get_by_role("region", name="Groups side by side")
    groups.get_by_role("link", name=name, exact=True).click()
    expect(page).to_have_url(address(hostile, f"#/subjects/{name}/groups/{name}"))
    expect(page.get_by_role("main")).to_contain_text("waiting")
    expect(heading).to_have_text(name)


def test_a_subject_that_is_not_there_says_so(hostile: Server, visits: Visits) -> None:
    page = visits.open(address(hostile, "#/subjects/%3Cscript%3E"), expected=["400", "404"])
    expect(page.get_by_role("main").get_by_role("alert")).to_contain_text("A name is wrong")
    check_harmless(page)
