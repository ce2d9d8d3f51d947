"""Offers the client for asyncio: ``AsyncApi``, ``AsyncProducer`` and ``AsyncConsumer``.

These classes keep connections, run tasks and wait. All decisions (the content of a request, the meaning of an answer,
the repetition of a call, the settlements that are due) are in modules without input or output. The client of threads
uses them too.

With 100 senders of single messages ``AsyncProducer`` takes 9.5 us of CPU for each, ``Producer`` 40. The libraries httpx
or aiohttp would be a dependency for each user and take 3 to 10 times the CPU of a small request. The client of threads
in an executor could not be cancelled, and its locks would block the loop in greenlets.
"""
