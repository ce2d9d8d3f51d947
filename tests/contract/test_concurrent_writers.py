"""The promises of the store hold for concurrent writers."""

from hourwheel.errors import Sealed
from hourwheel.ports.storage import Counter, Key, Record, Store, Table

from .records import THREADS, at_once, record, stored

ROUNDS = 12


def test_no_number_is_given_twice(shared_store: Store, partition: str) -> None:
    given = at_once(lambda _: [shared_store.add(partition, rows=1, numbers=3) for _ in range(ROUNDS)])
    every = sorted(total for totals in given for total in totals)
    assert every == [Counter(row, 3 * row) for row in range(1, THREADS * ROUNDS + 1)]
    assert shared_store.counter(partition) == every[-1]


def test_each_writer_is_given_rising_numbers(shared_store: Store, partition: str) -> None:
    given = at_once(lambda _: [shared_store.add(partition, rows=1, numbers=1) for _ in range(ROUNDS)])
    assert all(totals == sorted(set(totals)) for totals in given)


def test_a_row_has_one_winner_and_the_losers_get_its_record(shared_store: Store, partition: str) -> None:
    keys = [Key(Table.CONSUME, partition, f"{row:04d}") for row in range(ROUNDS)]

    def race(_: int) -> list[tuple[Record, Record | None]]:
        tried = [(mine := record(), shared_store.put(key, mine, expect=None)) for key in keys]
        return [(mine, mine if refused is None else refused.current) for mine, refused in tried]

    outcomes = at_once(race)
    for key, of_one_row in zip(keys, zip(*outcomes, strict=True), strict=True):
        winners = [mine for mine, holder in of_one_row if mine == holder]
        assert len(winners) == 1
        assert {holder.token for _, holder in of_one_row if holder} == {winners[0].token}
        assert shared_store.get(key) == winners[0]


def test_no_replacement_is_lost(shared_store: Store, partition: str) -> None:
    key = Key(Table.META, partition, "total")
    first = stored(shared_store, key, b"0")

    def count_up(_: int) -> None:
        seen = first
        for _ in range(ROUNDS):
            while refused := shared_store.put(
                key, mine := record(str(int(seen.value) + 1).encode()), expect=seen.token
            ):
                assert refused.current is not None
                seen = refused.current
            seen = mine

    at_once(count_up)
    final = shared_store.get(key)
    assert final is not None
    assert int(final.value) == THREADS * ROUNDS


def test_a_record_is_deleted_once(shared_store: Store, partition: str) -> None:
    key = Key(Table.KEYS, partition, "1")
    doomed = stored(shared_store, key)
    answers = at_once(lambda _: shared_store.delete(key, expect=doomed.token))
    assert answers.count(None) == 1
    assert {refused.current for refused in answers if refused} <= {None}


def test_no_number_is_given_after_a_seal(shared_store: Store, partition: str) -> None:
    def add_or_seal(thread: int) -> list[Counter]:
        given: list[Counter] = []
        if thread == 0:
            given.append(shared_store.seal(partition))
            return given
        try:
            while len(given) < ROUNDS:
                given.append(shared_store.add(partition, rows=1, numbers=1))
        except Sealed:
            pass
        return given

    [(final,), *given] = at_once(add_or_seal)
    rows = sorted(total.rows for totals in given for total in totals)
    assert rows == list(range(1, final.rows + 1))
    assert shared_store.counter(partition) == final
