"""Runs work for logs in several cells, and collects the cells that are out of reach: work on the other logs goes on.

A cell is out of reach if it does not answer, fails, has no room, is off line or was given up. This module and the room
of cells alone handle the error that says so.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from hourwheel.context import Context
from hourwheel.errors import CellUnavailable, HourwheelError
from hourwheel.model.log_names import HOME, cell_of
from hourwheel.reach.storages import at_home, stored_cell, was_given_up

T = TypeVar("T")
D = TypeVar("D")
S = TypeVar("S")


def reached(work: Callable[[], T], otherwise: D) -> T | D:
    """Runs the work and returns its result; returns ``otherwise`` if the work needs a cell that is out of reach."""
    try:
        return work()
    except CellUnavailable:
        return otherwise


def outage(work: Callable[[], object]) -> CellUnavailable | None:
    """Runs the work, and returns the error if it needs a cell that is out of reach."""
    try:
        work()
    except CellUnavailable as error:
        return error
    return None


def all_reached(work: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """Runs the work for each item, and returns the results of those whose cells can be reached."""
    results: list[T] = []
    for item in items:
        try:
            results.append(work(item))
        except CellUnavailable:
            continue
    return results


def unless_given_up(context: Context, log: str, work: Callable[[], T], otherwise: D) -> T | D:
    """Runs the work and returns its result; returns ``otherwise`` if the cell of the log is out of reach because it was
    given up. Raises every other outage."""
    try:
        return work()
    except CellUnavailable:
        if was_given_up(context, log):
            return otherwise
        raise


def check_serving(context: Context, logs: Iterable[str]) -> None:
    """Raises ``CellUnavailable`` if one of these logs is in a cell that is off line or was given up. A caller has to
    know this after it has stored rows and before it says so: a row that is stored once its cell is off line may be lost
    (docs/decisions/0058). One strongly consistent read for each cell; none for the home cell."""
    if context.cells is None:
        return
    for cell in {cell_of(log) for log in logs} - {HOME}:
        record = stored_cell(context, cell)
        if record is not None and not record.serves:
            raise CellUnavailable(f"cell {cell} is offline, and what was sent to it may be lost")


@contextmanager
def after_outage(call: Callable[[], object]) -> Iterator[None]:
    """Makes the call if the block needs a cell that is out of reach, and raises the error again."""
    try:
        yield
    except CellUnavailable:
        call()
        raise


def is_outage(error: BaseException) -> bool:
    """Returns whether the error says that a cell other than the home cell is out of reach."""
    return isinstance(error, CellUnavailable)


def is_logged(error: BaseException | None) -> bool:
    """Returns whether the error is an outage of another cell that a line of the log has told of."""
    return isinstance(error, CellUnavailable) and error.is_logged


def outage_of(error: HourwheelError) -> CellUnavailable:
    """Returns the error if it is an outage of another cell, and raises it otherwise."""
    if not isinstance(error, CellUnavailable):
        raise error
    return error


def raise_fault(errors: Iterable[HourwheelError]) -> None:
    """Raises the first of these errors that is no outage of another cell; returns if all of them are."""
    for error in errors:
        if not is_outage(error):
            raise error


@dataclass
class Outages:
    """Collects the cells that are out of reach while work goes through many logs. For one thread."""

    _cells: set[str] = field(default_factory=set)
    _last: CellUnavailable | None = None

    @property
    def names(self) -> list[str]:
        """The cells that are out of reach, in ascending order."""
        return sorted(self._cells)

    def has(self, log: str) -> bool:
        """Returns whether the log is in one of the cells that are out of reach."""
        return cell_of(log) in self._cells

    def names_of(self, logs: Iterable[str]) -> list[str]:
        """Returns those of the names that are cells of these logs."""
        return sorted(self._cells.intersection(map(cell_of, logs)))

    def add(self, logs: Iterable[str]) -> None:
        """Adds the cells of logs that could not be opened."""
        self._cells.update(map(cell_of, logs))

    def clear(self) -> None:
        """Forgets the cells: another pass over the logs begins."""
        self._cells.clear()

    @contextmanager
    def noted(self, log: str) -> Iterator[None]:
        """Ends the block where it needs the cell of the log and the cell is out of reach, and notes the cell. Errors
        of work in the home cell pass through."""
        try:
            yield
        except CellUnavailable as error:
            if at_home(log):
                raise
            self._note(log, error)

    @contextmanager
    def seen(self, log: str) -> Iterator[None]:
        """Notes the cell of the log like ``noted``, and raises the error again."""
        try:
            yield
        except CellUnavailable as error:
            self._note(log, error)
            raise

    def check(self, outcome: str) -> None:
        """Raises ``CellUnavailable`` if a cell is out of reach. ``outcome`` says what does not happen therefore."""
        if self._cells:
            raise CellUnavailable(f"cell {', '.join(self.names)} cannot be reached, so {outcome}")

    def raise_last(self) -> NoReturn:
        """Raises the last error as it came."""
        assert self._last is not None
        raise self._last

    def raise_as(self, kind: type[CellUnavailable]) -> NoReturn:
        """Raises the last error as one of this kind."""
        assert self._last is not None
        raise kind(str(self._last), is_logged=self._last.is_logged, is_lasting=self._last.is_lasting)

    def _note(self, log: str, error: CellUnavailable) -> None:
        self._cells.add(cell_of(log))
        self._last = error
