"""Defines what the library needs from its environment. The docstrings are the contract: the suite in ``tests/contract``
tests each sentence on every adapter.

Nothing above the ports imports a vendor's SDK, reads a clock or draws a random number.
"""
