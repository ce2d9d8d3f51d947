"""Counts requests against the quotas of services, and the ones that a quota refuses."""

from dataclasses import dataclass, field

from tests.load.machine import Machine


@dataclass
class Quota:
    """Lets ``rate`` requests through in a second, and ``most`` at once."""

    name: str
    machine: Machine
    rate: float
    most: float
    refused: int = 0
    first_refused: float = 0.0
    used: int = 0
    _left: float = field(init=False)
    _at: float = field(init=False)

    def __post_init__(self) -> None:
        self._left, self._at = self.most, self.machine.now

    def takes(self) -> bool:
        """Returns whether the request is let through."""
        now = self.machine.now
        self._left = min(self.most, self._left + self.rate * (now - self._at) / 1_000)
        self._at = now
        if self._left < 1:
            self.refuse()
            return False
        self._left -= 1
        self.used += 1
        return True

    def refuse(self) -> None:
        self.refused += 1
        self.first_refused = self.first_refused or self.machine.now

    def share(self, seconds: float) -> float:
        """Returns the used part of what the quota allowed in a run of this length."""
        return self.used / (self.rate * seconds) if seconds else 0.0


@dataclass
class Executions(Quota):
    """The executions of an account, of which ``most`` may run at once."""

    running: int = 0
    most_running: int = 0

    def takes(self) -> bool:
        if self.running >= self.most:
            self.refuse()
            return False
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        return True

    def gives_back(self) -> None:
        self.running -= 1

    def share(self, seconds: float) -> float:
        return self.most_running / self.most
