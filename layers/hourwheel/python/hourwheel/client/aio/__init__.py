"""The client for asyncio: ``AsyncApi``, ``AsyncProducer`` and ``AsyncConsumer``.

These classes decide nothing by themselves. What a request holds, what an answer means, when a call is repeated, which
settlement is due: the modules that the threads of the other client use decide all of this, and do no input or output.
"""
