"""Many callers ask whether the server can write, and one of them finds it out for all."""

import asyncio
from pathlib import Path

from hourwheel.embedded.directories.reserve import Reserves
from hourwheel.embedded.readiness import Readiness


def test_who_asks_while_an_attempt_ends_is_answered_too() -> None:
    async def ask() -> list[int]:
        readiness = Readiness(lambda: None, Reserves(Path(), {}, 0))
        asked = []
        for _ in range(300):
            readiness._until = 0.0  # the answer is no longer kept
            asked.append(asyncio.ensure_future(readiness.answer("1")))
            await asyncio.sleep(0)
        answers = [answer["statusCode"] for answer in await asyncio.gather(*asked)]
        readiness.close()
        return answers

    assert asyncio.run(ask()) == [200] * 300
