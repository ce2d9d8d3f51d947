"""Limits the rate of pulls of a group. For one thread."""

from collections import OrderedDict

from hourwheel.ports import Clock

_KEYS = 10_000  # bounds the memory


class Rate:
    """Allows each key ``per_second`` calls in the long run, and one second's worth at once; 0: any number.

    For each key it keeps the time at which all calls so far will have been due (the generic cell rate algorithm), in
    the order in which keys were last counted. Beyond ``_KEYS`` keys it forgets the key that was counted longest ago,
    which may then make one second's worth of calls again. So memory is bounded, and so is the cost of a call.
    """

    def __init__(self, per_second: float, clock: Clock) -> None:
        self._interval_ms = 1_000 / per_second if per_second else 0.0
        self._burst_ms = max(1_000.0, self._interval_ms)
        self._clock = clock
        self._due_ms: OrderedDict[int, float] = OrderedDict()  # a dict scans all entries that were removed at its front

    def wait_seconds(self, name: object) -> float:
        """Counts a call and returns 0, or returns the seconds until the next call is allowed."""
        if not self._interval_ms:
            return 0.0
        key = hash(name)  # the client chose the name, and its length
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
