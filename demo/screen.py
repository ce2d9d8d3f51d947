"""Shows progress while the demo runs, and results at the end."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from demo import history
from demo.lateness import bars, histogram, summary

_PLAIN_SECONDS = 2.0
_BAR_WIDTH = 48


class Screen:
    """Shows bars on a terminal, elsewhere a line every two seconds."""

    def __init__(self) -> None:
        self.console = Console()
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._done: dict[str, int] = {}
        self._said = 0.0

    @contextmanager
    def running(self, totals: Mapping[str, int]) -> Iterator[None]:
        """Shows the progress of an act."""
        self._bars = Progress(
            TextColumn("{task.description:>9}"),
            BarColumn(bar_width=_BAR_WIDTH),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._tasks = {name: self._bars.add_task(name, total=total) for name, total in totals.items()}
        self._done = dict.fromkeys(totals, 0)
        with self._bars:
            yield

    def say(self, text: str) -> None:
        self.console.print(f"[bold]·[/bold] {text}", highlight=False, soft_wrap=True)

    def show(self, **done: int) -> None:
        self._done.update(done)
        if self._bars is not None:
            for name, count in self._done.items():
                self._bars.update(self._tasks[name], completed=count)
        if not self.console.is_terminal and time.monotonic() - self._said > _PLAIN_SECONDS:
            self._said = time.monotonic()
            self.console.print("  " + "  ".join(f"{name} {count:,}" for name, count in self._done.items()))

    def table(self, accounts: list[history.Account]) -> None:
        table = Table(title="Every flight, in every group")
        for name in ("group", "accepted", "delivered", "re-\ndelivered", "died", "dead\nnow", "pending", "handled\n/s"):
            table.add_column(name, justify="left" if name == "group" else "right")
        for account in accounts:
            counts = (
                account.accepted,
                account.delivered,
                account.redelivered,
                account.died,
                account.dead,
                account.pending,
            )
            table.add_row(account.group, *(f"{count:,}" for count in counts), f"{account.per_second:,.0f}")
        self.console.print(table)

    def lateness(self, title: str, values_ms: list[float]) -> None:
        """Prints a histogram of the lateness of calls."""
        late = summary(values_ms)
        self.say(
            f"{title}: {len(values_ms):,} calls, late by p50 {late.p50:,} ms, p99 {late.p99:,} ms, max {late.max:,} ms"
        )
        for line in bars(histogram(values_ms), width=_BAR_WIDTH, plain=not self.console.is_terminal):
            self.console.print(line, highlight=False, markup=False)


def lines_in(folder: Path, who: str) -> int:
    """Returns the number of messages that the consumers whose names begin with ``who`` have recorded so far."""
    return sum(path.read_bytes().count(b"\n") for path in folder.glob(f"{who}*.jsonl"))
