"""The how-tos of frameworks run from their first block to their last, and print what they show."""

from pathlib import Path

import pytest

from tests.docs.pages import HOWTOS_OF_FRAMEWORKS
from tests.docs.walks import walked


@pytest.mark.parametrize("page", HOWTOS_OF_FRAMEWORKS, ids=lambda page: page.stem)
def test_a_reader_of_the_page_sees_what_it_shows(page: Path, tmp_path: Path) -> None:
    # Celery warns where root runs its worker, as in a container.
    with walked(page, tmp_path, warnings="ignore" if page.stem == "celery-redis" else "error"):
        pass
