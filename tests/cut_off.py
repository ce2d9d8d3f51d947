"""A store on which a producer is cut off half-way through a batch."""

from hourwheel.errors import Unavailable
from hourwheel.ports.storage import Key, Record, Refused, Table
from tests.support import CallByCall


class CutOffRows(CallByCall):
    """Refuses the rows of queues after ``puts_left`` of them; -1: never."""

    puts_left = -1

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        if key.table is Table.CONSUME and self.puts_left >= 0:
            if self.puts_left == 0:
                raise Unavailable("cut off")
            self.puts_left -= 1
        return super().put(key, record, expect=expect)
