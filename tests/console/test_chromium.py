"""The browser of these tests starts, or says what is missing."""

import platform
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.console import chromium
from tests.console.pages import Visits
from tests.integration.process import Server


def test_the_browser_shows_a_page(browser: Browser) -> None:
    page = browser.new_page()
    page.set_content("<h1>Hourwheel</h1>")
    assert page.get_by_role("heading").inner_text() == "Hourwheel"
    page.close()


def test_a_machine_without_the_package_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setattr(chromium, "PACKAGE", tmp_path / "nothing")
    with pytest.raises(chromium.NoChromium, match="run npm ci"):
        chromium.find()


def test_another_kind_of_machine_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(chromium.NoChromium, match="install a Chromium, and name its path in CHROMIUM"):
        chromium.find()


def test_the_environment_names_another_browser(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other = tmp_path / "chromium"
    monkeypatch.setenv("CHROMIUM", str(other))
    with pytest.raises(chromium.NoChromium, match="is no program"):
        chromium.find()
    other.touch(mode=0o755)
    assert chromium.find() == chromium.Chromium(other)


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("fetch('http://elsewhere.test/x').catch(() => 0)", "elsewhere.test"),
        ("console.error('wrong')", "wrong"),
        ("setTimeout(() => { throw new Error('thrown') })", "thrown"),
    ],
)
def test_a_page_with_a_fault_fails_its_test(browser: Browser, server: Server, script: str, fault: str) -> None:
    visits = Visits(browser)
    page = visits.open(f"http://127.0.0.1:{server.port}/v1/health")
    page.evaluate(script)
    with page.expect_event("console", lambda message: message.text == "done"):
        page.evaluate("setTimeout(() => console.log('done'), 50)")
    with pytest.raises(AssertionError, match=fault):
        visits.close()
