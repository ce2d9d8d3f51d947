import pytest

from tests.infra.synthesis import EVERYTHING, NOT_MUCH, THROUGH_URLS, Synthesis, synthesised


@pytest.fixture(scope="session")
def defaults(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    return synthesised({}, tmp_path_factory.mktemp("defaults"))


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """Synthesises the templates with all settings."""
    return synthesised(EVERYTHING, tmp_path_factory.mktemp("everything"))


@pytest.fixture(scope="session")
def not_much(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """Synthesises the templates without optional settings."""
    return synthesised(NOT_MUCH, tmp_path_factory.mktemp("not-much"))


@pytest.fixture(scope="session")
def through_urls(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """Synthesises the templates with function URLs."""
    return synthesised(THROUGH_URLS, tmp_path_factory.mktemp("through-urls"))


@pytest.fixture(params=["defaults", "everything", "not_much"])
def each(request: pytest.FixtureRequest) -> Synthesis:
    found: Synthesis = request.getfixturevalue(request.param)
    return found
