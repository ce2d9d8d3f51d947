"""A notification reaches a task that waits, whatever happens to others."""

import asyncio

from hourwheel.client.aio.waking import AsyncCondition


async def waiting(condition: AsyncCondition, ended: list[int], number: int) -> None:
    await condition.wait(None)
    ended.append(number)


def test_a_notification_passes_over_a_task_that_is_cancelled_in_the_same_turn() -> None:
    async def life() -> list[int]:
        condition, ended = AsyncCondition(), list[int]()
        tasks = [asyncio.create_task(waiting(condition, ended, number)) for number in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        condition.notify()
        for _ in range(3):
            await asyncio.sleep(0)
        notified = list(ended)
        condition.notify_all()
        await asyncio.wait(tasks)
        return notified

    assert asyncio.run(life()) == [1]


def test_a_task_that_is_cancelled_after_its_notification_passes_it_on() -> None:
    async def life() -> list[int]:
        condition, ended = AsyncCondition(), list[int]()
        tasks = [asyncio.create_task(waiting(condition, ended, number)) for number in range(2)]
        await asyncio.sleep(0)
        condition.notify()
        tasks[0].cancel()
        await asyncio.wait(tasks)
        return ended

    assert asyncio.run(life()) == [1]
