"""Checks that cells are named where their owners are, and nowhere else.

The owners are ``cells/``, which has the calls of operators and the moves of queues, ``reach/``, which runs work for the
logs of all cells and collects the cells that are out of reach, and the deployment, which consists of cells. Words are
counted as for ordered groups, in the paths of imports too. The rooms in which users name cells do not count: API,
command line, client, console, and the server on one machine, which opens the directories of cells.
"""

import ast

from tests.unit.test_owners_of_order import LIBRARY, files_that_say, names_in

CELLS = frozenset(
    {
        "archive/archiver.py",  # a field of its report
        "archive/rebuild.py",  # registers the cells of the archive again
        "context.py",  # opens the storage of each log
        "errors.py",
        "groups/group_progress.py",  # fields of the lag, and of the overview
        "model/lag.py",
        "model/overview.py",
        "operations/overview.py",
        "model/log_names.py",  # the records of where queues are
        "model/route_records.py",
        "model/routes.py",
        "model/subjects.py",
        "ports/storage.py",
        "faults.py",  # names the cell in a line of the log
        "producing/batch_writer.py",  # puts large batches into the folder of their cell
        # They carry out changes of routes:
        "delay/dispatch.py",
        "producing/produce.py",
        "pulling/source_logs.py",
        "sweep/parts.py",
    }
)
OWNERS = frozenset({"cells", "reach", "deployment"})
USERS = frozenset({"aws", "embedded"})
ERRORS = frozenset({"CellUnavailable", "CellFull"})
NAME_THE_ERROR = frozenset(
    {
        "api/problems.py",  # answers it
        "context.py",  # refuses a cell that this process does not open
        "errors.py",  # defines it
        "reach/outages.py",  # handles it
    }
)


def test_few_files_name_cells() -> None:
    assert files_that_say(frozenset({"cell", "cells"}), OWNERS | USERS) <= CELLS
    assert len(CELLS) <= 19


def test_the_error_of_a_cell_is_handled_in_one_place() -> None:
    files = {path.relative_to(LIBRARY).as_posix(): path for path in LIBRARY.rglob("*.py")}
    named = {name for name, path in files.items() if ERRORS & set(names_in(ast.parse(path.read_text("utf-8"))))}
    assert {name for name in named if not name.startswith("cells/")} == NAME_THE_ERROR
    assert len(NAME_THE_ERROR) <= 4
