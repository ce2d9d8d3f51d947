"""Runs one connection of a client that keeps some of the rules."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from tests.fuzz.grammar import Call, Grammar
from tests.fuzz.oracle import Violation, read_answer
from tests.fuzz.wire import Sent, cut, encode

SECONDS = 60.0
"""A conversation that takes longer counts as stuck."""


@dataclass
class Account:
    """The account of a run: at the end the server must have the ``accepted`` messages, and no ``refused`` one."""

    answers: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    accepted: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)


class Conversation:
    def __init__(self, port: int, account: Account, seed: str) -> None:
        self._port = port
        self._account = account
        self._rng = Random(seed)
        self._grammar = Grammar(self._rng, seed)

    async def hold(self) -> None:
        """Holds the conversation. Raises ``Violation``."""
        try:
            async with asyncio.timeout(SECONDS):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                try:
                    await self._talk(reader, writer)
                finally:
                    writer.transport.abort()
        except TimeoutError:
            raise Violation("it hangs") from None

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        rng = self._rng
        for _ in range(rng.choice((1, 3, 8, 20))):
            calls = [self._grammar.draw() for _ in range(rng.choice((1, 1, 1, 1, 2, 4)))]
            sent = [encode(rng, call) for call in calls]
            data = b"".join(part.data for part in sent)
            if rng.random() < 0.03:
                data = data[: rng.randrange(len(data))]
                await self._leave(reader, writer, data, calls)
                return
            await self._say(writer, data)
            if not await self._hear(reader, calls, sent):
                break
        if writer.can_write_eof() and rng.random() < 0.5:
            await self._end(reader, writer)

    async def _say(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        for piece in cut(self._rng, data):
            try:
                writer.write(piece)
                await writer.drain()
            except ConnectionError:
                return  # the server refused the request before its end: the answer states the reason
            await asyncio.sleep(0)

    async def _hear(self, reader: asyncio.StreamReader, calls: list[Call], sent: list[Sent]) -> bool:
        """Sends a call and judges its answer. Returns whether the connection stays open."""
        for call, part in zip(calls, sent, strict=True):
            self._account.requests += 1
            answer = await read_answer(reader, call.method if part.whole else "")
            if answer is None:
                if part.whole and part is sent[0]:
                    raise Violation(f"no answer to {part.data[:300]!r}")
                return False
            self._account.answers[f"{answer.status} {answer.slug}".rstrip()] += 1
            self._judge(call, part, answer.status)
            self._grammar.learn(answer.document)
            if answer.last or not part.whole:
                # The server may refuse bytes that are no request before their end: the connection ends then.
                return False
        return True

    def _judge(self, call: Call, part: Sent, status: int) -> None:
        if not part.whole:
            if status not in {400, 401, 403, 404, 405, 413, 431}:
                raise Violation(f"{status} to what is no request: {part.data[:300]!r}")
            self._account.refused.update(call.kept)
        elif call.kept and status == 200:
            self._account.accepted.update(call.kept)
        elif call.kept and status not in {408, 503}:
            raise Violation(f"{status} to a valid message: {part.data[:300]!r}")

    async def _leave(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes, calls: list[Call]
    ) -> None:
        """Leaves within a request."""
        await self._say(writer, data)
        if self._rng.random() < 0.5:
            return
        await self._end(reader, writer, at_most=[call.method for call in calls])

    async def _end(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, at_most: list[str] | None = None
    ) -> None:
        """Ends the client's side: the server sends the outstanding answers, and ends its own side."""
        try:
            writer.write_eof()
        except OSError:
            return
        for method in at_most or []:
            if await read_answer(reader, method) is None:
                return
        try:
            rest = await reader.read()
        except ConnectionError:
            return
        if rest:
            raise Violation(f"an answer that nobody asked for: {rest[:300]!r}")
