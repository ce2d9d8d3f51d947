"""What the hosting platform and editors read names files, targets and addresses that exist."""

import fnmatch
import json
import re
import subprocess
import tomllib
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.project.test_workflows import TARGETS
from tests.rooms import ROOT

GITHUB = ROOT / ".github"
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
HOME = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Homepage"]
DEVCONTAINER = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def rules(name: str) -> dict[str, str]:
    """Returns what ``.editorconfig`` asks of a file; the last section that matches decides."""
    parser = ConfigParser()
    parser.read_string("[top]\n" + (ROOT / ".editorconfig").read_text())
    found: dict[str, str] = {}
    for section in parser.sections():
        choices = re.fullmatch(r"(.*)\{(.*)\}(.*)", section)
        patterns = [choices[1] + one + choices[3] for one in choices[2].split(",")] if choices else [section]
        if any(fnmatch.fnmatch(Path(name).name, pattern) for pattern in patterns):
            found |= parser[section]
    return found


def test_the_files_are_as_editors_are_told_to_write_them() -> None:
    wrong = []
    for name in tracked():
        content = (ROOT / name).read_bytes()
        if b"\0" in content or not content:
            continue  # a picture; a marker
        rule, lines = rules(name), content.decode().split("\n")
        if rule["trim_trailing_whitespace"] == "true" and any(line != line.rstrip(" \t\r") for line in lines):
            wrong.append(f"{name}: blanks at the end of a line")
        if rule["insert_final_newline"] == "true" and lines[-1]:
            wrong.append(f"{name}: no end of line at its end")
        if rule["indent_style"] == "space" and any(line.startswith("\t") for line in lines):
            wrong.append(f"{name}: indented with tabs")
    assert wrong == []


def test_editors_and_the_linter_agree_on_lines_of_python() -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]
    assert rules("one.py")["max_line_length"] == str(linter["line-length"])
    assert (rules("one.py")["indent_size"], rules("Makefile")["indent_style"]) == ("4", "tab")


def test_the_container_has_the_release_and_the_packages_that_the_readme_names() -> None:
    install = re.search(r"^sudo apt install (.+)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    release = re.search(r"^FRESH \?= (\w+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert install
    assert release
    assert DEVCONTAINER["onCreateCommand"].partition(" install --yes ")[2] == install[1]
    assert DEVCONTAINER["image"].endswith(f":{release[1]}")
    command, *targets = DEVCONTAINER["postCreateCommand"].split()
    assert command == "make"
    assert set(targets) <= TARGETS


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_asks_each_question_once_and_needs_an_answer_to_one(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    assert {"name", "description", "body"} <= set(form)
    asked = [part for part in form["body"] if part["type"] != "markdown"]
    names = [part["id"] for part in asked]
    assert len(names) == len(set(names)) > 1
    assert all(part["attributes"]["label"] for part in asked)
    assert any(part.get("validations", {}).get("required") for part in asked)


def test_the_links_beside_the_forms_lead_into_the_repository() -> None:
    links: list[dict[str, Any]] = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE/config.yml").read_text())["contact_links"]
    for link in links:
        inside = link["url"].removeprefix(f"{HOME}/")
        assert inside == "security/policy" or (ROOT / inside.removeprefix("blob/main/")).is_file(), link
    assert (ROOT / "SECURITY.md").is_file()


def test_each_owner_belongs_to_the_repository_and_each_pattern_to_a_file() -> None:
    organisation = HOME.split("/")[-2]
    lines = [line.split() for line in (GITHUB / "CODEOWNERS").read_text().splitlines() if line[:1] not in ("#", "")]
    assert lines
    for pattern, *owners in lines:
        assert owners
        assert all(owner.startswith(f"@{organisation}/") for owner in owners)
        assert pattern == "*" or (ROOT / pattern.strip("/")).exists()


def test_dependabot_renews_what_has_a_file_of_that_kind() -> None:
    updates = yaml.safe_load((GITHUB / "dependabot.yml").read_text())["updates"]
    files = {"github-actions": GITHUB / "workflows/ci.yml", "npm": ROOT / "package-lock.json"}
    assert {update["package-ecosystem"] for update in updates} == set(files)
    assert all(files[update["package-ecosystem"]].is_file() for update in updates)


def test_the_hooks_find_all_environments_with_which_make_checks() -> None:
    needed = dict(re.findall(r"^(check|hooks): (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"[a-z]+-ready", needed["check"])) <= set(re.findall(r"[a-z]+-ready", needed["hooks"]))


def test_the_rules_of_conduct_name_a_way_to_report() -> None:
    assert "(SECURITY.md#report)" in (ROOT / "CODE_OF_CONDUCT.md").read_text()


def test_the_template_of_pull_requests_names_files_and_targets_that_exist() -> None:
    text = (GITHUB / "PULL_REQUEST_TEMPLATE.md").read_text()
    assert [name for name in re.findall(r"`make ([a-z-]+)", text) if name not in TARGETS] == []
    assert [name for name in re.findall(r"`([\w./-]+/[\w./]*)`", text) if not (ROOT / name).exists()] == []
