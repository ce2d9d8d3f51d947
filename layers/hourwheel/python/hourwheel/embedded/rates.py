"""How often a group may pull. For one thread."""

from collections import OrderedDict

from hourwheel.ports import Clock

_KNOWN = 10_000


class Rate:
    """At most ``per_second`` in the long run, and one second's worth at once, for each key; 0: any number.

    It remembers of each key when all that was taken will have been due (the generic cell rate algorithm), in the order
    in which keys were last counted. Beyond ``_KNOWN`` keys it forgets the one that was counted longest ago, which may
    then take a second's worth again: memory is bounded, and so is what a call costs.
    """

    def __init__(self, per_second: float, clock: Clock) -> None:
        self._interval_ms = 1_000 / per_second if per_second else 0.0
        self._burst_ms = max(1_000.0, self._interval_ms)
        self._clock = clock
        self._due_ms: OrderedDict[int, float] = OrderedDict()  # a dict looks at all that it removed in front

    def wait_seconds(self, name: object) -> float:
        """0, and one is taken; or in how many seconds there will be one."""
        if not self._interval_ms:
            return 0.0
        key = hash(name)  # whoever asks chose the name, and its length
        now_ms = self._clock.now_ms()
        due_ms = max(float(now_ms), self._due_ms.get(key, 0.0))
        if due_ms > now_ms + self._burst_ms:
            due_ms = float(now_ms)  # the clock was set back: nobody is shut out for as long
        due_ms += self._interval_ms
        early_ms = due_ms - now_ms - self._burst_ms
        if early_ms > 0:
            return early_ms / 1_000
        self._due_ms[key] = due_ms
        self._due_ms.move_to_end(key)
        while len(self._due_ms) > _KNOWN or next(iter(self._due_ms.values())) <= now_ms:
            self._due_ms.popitem(last=False)
        return 0.0
