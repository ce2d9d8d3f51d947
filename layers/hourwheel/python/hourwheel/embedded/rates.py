"""Limits the rate of pulls of a group. For one thread."""

from collections import OrderedDict

from hourwheel.ports.machine import Clock

_KEYS = 10_000  # bounds the memory, as clients may name any group


class Rate:
    """Allows each key ``per_second`` calls in the long run, and as many calls at once (0: any number).

    For each key it keeps the time at which all calls so far would have been made at that rate (the generic cell rate
    algorithm). It keeps the keys in the order of their last call. Beyond ``_KEYS`` keys it forgets the one whose last
    call is oldest, which may then make a second's calls at once. So the memory is bounded, and so is the cost of a
    call.
    """

    def __init__(self, per_second: float, clock: Clock) -> None:
        self._interval_ms = 1_000 / per_second if per_second else 0.0
        self._burst_ms = max(1_000.0, self._interval_ms)
        self._clock = clock
        self._due_ms: OrderedDict[int, float] = OrderedDict()  # a dict would scan entries removed at its front

    def wait_seconds(self, name: object) -> float:
        """Counts a call and returns 0; if the call is not allowed, returns the seconds until the next one is."""
        if not self._interval_ms:
            return 0.0
        key = hash(name)  # a name of any length takes the same memory
        now_ms = self._clock.now_ms()
        due_ms = max(float(now_ms), self._due_ms.get(key, 0.0))
        if due_ms > now_ms + self._burst_ms:
            due_ms = float(now_ms)  # the clock was set back, which must not block the key
        due_ms += self._interval_ms
        early_ms = due_ms - now_ms - self._burst_ms
        if early_ms > 0:
            return early_ms / 1_000
        self._due_ms[key] = due_ms
        self._due_ms.move_to_end(key)
        while len(self._due_ms) > _KEYS or next(iter(self._due_ms.values())) <= now_ms:
            self._due_ms.popitem(last=False)
        return 0.0
