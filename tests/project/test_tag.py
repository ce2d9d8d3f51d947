"""A tag is released if it names the version of the code, and the changelog tells what is in it."""

import pytest

from hourwheel import __version__
from infra.supply import tag


@pytest.mark.parametrize(
    ("name", "changelog", "fault"),
    [
        ("v1.2.3", "## 1.2.3 (2031-02-03)\n- a\n", ""),
        ("1.2.3", "## 1.2.3 (2031-02-03)\n", "the tag 1.2.3 is not v1.2.3"),
        ("", "## 1.2.3 (2031-02-03)\n", "the tag (none) is not v1.2.3"),
        ("v1.2.3", "## 1.2.3\n- a\n", "no section '## 1.2.3' with its date"),
        ("v1.2.3", "## 1.2.30 (2031-02-03)\n- a\n## 102.3 (2031-02-03)\n- a\n", "no section"),
        ("v1.2.3", "## 1.2.3 (2031-02-03)\n\n\n## 1.2.3\n- a\n", "2 sections '## 1.2.3'"),
        ("v1.2.3", "## 1.2.3 (2031-02-03)\n- a\n## 1.2.3 (2031-02-02)\n- b\n", "2 sections '## 1.2.3'"),
        ("v1.2.3", "## 1.2.3 (2031-02-03)\n\n### Queue\n\n## 1.2.2 (2030-02-03)\n- a\n", "is empty"),
        ("v1.2.3", "## 1.2.3 (2031-02-03)\n", "is empty"),
        ("v1.2.3", "## 1.2.3 (2031-02-03)\n\n### Queue\n\n- a\n\n## 1.2.2 (2030-02-03)\n", ""),
    ],
)
def test_a_tag_needs_the_version_and_a_section_with_a_date(name: str, changelog: str, fault: str) -> None:
    found = tag.fault(name, "1.2.3", changelog)
    assert fault in found
    assert bool(found) is bool(fault)


def test_a_tag_of_another_version_ends_with_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert tag.main(["v0.0.0"]) == 1
    assert capsys.readouterr().err == f"the tag v0.0.0 is not v{__version__}, the version of the code\n"
