"""Where no fresh machine can be made, the commands of README are not tested, and the run says so."""

import pytest

from tests.verify import debian


@pytest.fixture
def unable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(debian.os, "geteuid", lambda: 1000)


@pytest.mark.usefixtures("unable")
def test_a_workflow_shows_a_warning(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert debian.main(["trixie", "make demo"]) == debian.UNKNOWN
    said = capsys.readouterr()
    assert said.out == "::warning title=README on trixie was not tested::only root may make a root of Debian\n"
    assert "nothing is known" in said.err


@pytest.mark.usefixtures("unable")
def test_elsewhere_standard_error_alone_says_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert debian.main(["trixie", "make demo"]) == debian.UNKNOWN
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "trixie: nothing is known, because only root may make a root of Debian\n"
