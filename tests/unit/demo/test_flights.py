"""The demo reads the flights of its input."""

from demo.flights import january, tail_number


def test_the_month_has_its_flights_each_with_a_name_of_its_own() -> None:
    flights = january()
    assert len(flights) == len({flight.name for flight in flights}) == 27_004
    assert sum(flight.cancelled for flight in flights) == 521
    assert sum(not tail_number(flight.body) for flight in flights) == 155
    assert (min(flight.minute for flight in flights), max(flight.minute for flight in flights)) == (315, 44_639)


def test_the_first_flight_is_read_as_it_stands() -> None:
    first = january(1)[0]
    assert (first.name, first.carrier, first.minute, first.cancelled) == ("2013-01-01-UA1545-EWR", "UA", 315, False)
