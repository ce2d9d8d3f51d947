"""With Django, messages are remembered in the ``atomic`` block of the handler. Each project is a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import psycopg.conninfo
import pytest

from tests.docs.pages import ROOT


@pytest.fixture(params=["postgresql", "sqlite"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    if request.param == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "shop.db")}
    parts = psycopg.conninfo.conninfo_to_dict(request.getfixturevalue("postgres"))
    names = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    found = {name: str(parts[part]) for name, part in names.items() if part in parts}
    return {"ENGINE": "django.db.backends.postgresql", **found}


def test_a_consumer_of_a_django_project_has_each_effect_once(database: dict[str, str]) -> None:
    command = [sys.executable, "-m", "tests.apps.idempotency.django_bills", json.dumps(database)]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert answer.returncode == 0, answer.stderr
    missing, *steps = [json.loads(line) for line in answer.stdout.splitlines()]
    assert missing[0] == "no table"
    assert "run manage.py migrate hourwheel" in missing[1]
    assert steps == [
        ["killed", [7], 1],
        ["delivered again", [7], 1],
        ["failed", [7], 1],
        ["retried", [7, 8], 2],
        ["expired", [7, 8], 0],
        ["blanks", [True, True, True, False], 3],
    ]
