"""Offers the client for asyncio: ``AsyncApi``, ``AsyncProducer`` and ``AsyncConsumer``.

These classes keep connections, run tasks and wait. All decisions (the content of a request, the meaning of an answer,
the repetition of a call, the settlements that are due) are made by modules without input or output, which the client of
threads uses too.
"""
