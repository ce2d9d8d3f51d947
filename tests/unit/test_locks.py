"""Locks that the main thread of a program may hold are given back when Ctrl-C ends the block that holds them."""

import ast
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hourwheel
from hourwheel.locks import Condition, Event, give_back, gives_back

FAR_SECONDS = 30.0
PACKAGE = Path(hourwheel.__file__).parent

OF_SERVERS = {
    "adapters/sqlite/group_commit.py",
    "adapters/metrics.py",
    "adapters/aws/targets.py",
    "delay/lists/pending_counts.py",
    "embedded",
    "faults.py",
    "operations/attention.py",
    "operations/history.py",
    "operations/overview.py",
    "push/lease.py",
    "settling/leases.py",
    "settling/lease_watch.py",
    "sweep/retention.py",
    "aws/cells.py",
    "adapters/aws/clients.py",
    "adapters/sqlite/writer.py",
}
"""Entered by the threads of a server. Its main thread runs an event loop, which takes signals between two callbacks.
Greenlets of one thread share some of these locks, which a lock that knows its thread would let in together. A queue in
memory, which the main thread of a test enters, starts another deployment on its store after an interrupt."""

PLAIN = {
    "client/producing/shared_sends.py": "handed from one caller to another; no block enters them",
    "locks.py": "the mechanism",
}
_ENTERED = re.compile(r"(^|\.)_?(\w*lock|mutex|condition|changing|changed|due|ready|hungry|completion)$")


def sources() -> list[Path]:
    names = {path: path.relative_to(PACKAGE).as_posix() for path in sorted(PACKAGE.rglob("*.py"))}
    return [path for path, name in names.items() if name not in OF_SERVERS and name.split("/")[0] not in OF_SERVERS]


def unprotected(tree: ast.AST) -> Iterator[str]:
    """Yields each block on a lock whose function is not decorated and has no ``try`` that gives the lock back."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.With):
            continue
        for lock in (ast.unparse(item.context_expr) for item in node.items):
            if _ENTERED.search(lock) and not any(gives(each, lock) for each in above(node, parents)):
                yield f"with {lock}, line {node.lineno}"


def above(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> Iterator[ast.AST]:
    while node in parents:
        node = parents[node]
        yield node


def gives(node: ast.AST, lock: str) -> bool:
    if isinstance(node, ast.FunctionDef) and lock == "self._lock":
        return "gives_back" in map(ast.unparse, node.decorator_list)
    if isinstance(node, ast.Try):
        bodies = [ast.unparse(each) for handler in node.handlers for each in handler.body]
        return bodies == [f"give_back({lock})", "raise"]
    return False


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_each_block_on_a_lock_gives_it_back(path: Path) -> None:
    assert list(unprotected(ast.parse(path.read_text()))) == []


def test_locks_know_their_owners_and_conditions_are_those_of_the_library() -> None:
    made = re.compile(r"(threading\.(Lock|Condition|Event|Semaphore|BoundedSemaphore|Barrier)|queue\.Queue)\(")
    names = {path.relative_to(PACKAGE).as_posix() for path in sources() if made.search(path.read_text())}
    assert names == set(PLAIN)


def test_a_block_without_protection_is_found() -> None:
    code = "def f(self):\n    with self._lock: pass\n    with _lock, open(p): pass\n"
    assert list(unprotected(ast.parse(code))) == ["with self._lock, line 2", "with _lock, line 3"]


class Counted:
    """Leaves its lock held, as an interrupt behind ``__enter__`` does."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    @gives_back
    def interrupted(self) -> None:
        self._lock.acquire()
        raise KeyboardInterrupt

    @gives_back
    def outer(self) -> bool:
        with self._lock:
            with pytest.raises(KeyboardInterrupt):
                self.interrupted()
            return self.is_free()

    def is_free(self) -> bool:
        """Returns whether another thread gets the lock."""
        taken: list[bool] = []
        thread = threading.Thread(target=lambda: taken.append(self._lock.acquire(blocking=False)))
        thread.start()
        thread.join()
        return taken[0]


def test_a_method_that_is_interrupted_gives_its_lock_back() -> None:
    counted = Counted()
    with pytest.raises(KeyboardInterrupt):
        counted.interrupted()
    assert counted.is_free()


def test_a_method_that_is_called_within_the_lock_leaves_it_to_its_caller() -> None:
    assert not Counted().outer()


def test_a_lock_that_is_not_held_stays_as_it_is() -> None:
    lock = threading.RLock()
    give_back(lock)
    with lock:
        pass


def test_a_wait_ends_with_the_lock_held_and_leaves_no_waiter() -> None:
    lock = threading.RLock()
    changed = Condition(lock)
    with lock:
        assert not changed.wait(0.001)
        changed.notify()  # no waiter of before takes it
        assert not changed._waiters
    woken = threading.Event()

    def wait() -> None:
        with lock:
            ready.set()
            if changed.wait(FAR_SECONDS):
                woken.set()

    ready = threading.Event()
    thread = threading.Thread(target=wait)
    thread.start()
    ready.wait(FAR_SECONDS)
    with lock:
        changed.notify()
    thread.join(FAR_SECONDS)
    assert woken.is_set()


def test_an_event_does_what_that_of_the_standard_library_does() -> None:
    event = Event()
    assert not event.wait(0)
    assert not event.is_set()
    thread = threading.Thread(target=event.set)
    thread.start()
    assert event.wait(FAR_SECONDS)
    thread.join()
    event.clear()
    assert not event.wait(0.001)


def ends(wait: Callable[[], object]) -> bool:
    """Returns whether a call on a thread of its own ends."""
    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    thread.join(FAR_SECONDS)
    return not thread.is_alive()


def test_a_signal_that_sets_an_event_between_the_look_and_the_wait_ends_the_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The handler runs on the thread that looks, and so within its lock."""
    event = Event()

    def look() -> bool:
        seen = event._set
        event.set()
        return seen

    monkeypatch.setattr(event, "is_set", look)
    assert ends(event.wait)


def test_a_wait_within_a_lock_that_is_held_twice_frees_it_and_holds_it_twice_again() -> None:
    lock = threading.RLock()
    changed = Condition(lock)
    depths: list[int] = []

    def notify() -> None:
        with lock:
            changed.notify()

    def wait() -> None:
        with lock, lock:
            assert not changed.wait(0.001)
            other = threading.Thread(target=notify)
            other.start()
            assert changed.wait()
            other.join()
            depths.append(0)
            while lock._is_owned():  # type: ignore[attr-defined]  # not in typeshed
                lock.release()
                depths[0] += 1
            lock.acquire()
            lock.acquire()

    assert ends(wait)
    assert depths == [2]


def test_a_wait_without_the_lock_is_an_error_and_leaves_no_waiter() -> None:
    changed = Condition(threading.RLock())
    with pytest.raises(RuntimeError):
        changed.wait(0)
    assert not changed._waiters
