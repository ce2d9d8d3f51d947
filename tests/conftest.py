"""Configures all tests."""

import gc
import os
import signal

OBJECTS_BETWEEN_COLLECTIONS = 50_000


# A script that runs the tests in the background (``nohup make test &``) ignores SIGINT, and so would each process that
# a test starts and interrupts. A signal that is handled here has its default effect there.
signal.signal(signal.SIGINT, signal.default_int_handler)

# pytest sets these where it runs tests in processes of its own. A program would believe them instead of the terminal
# that a test gives it.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)


def pytest_collection_finish() -> None:
    """Exempts the thousands of tests and modules that live until the end from garbage collection: scanning them takes a
    fifth of the CPU time of the simulation."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, 20, 20)
