"""Implements the outbox: the rows of an application's transaction, and the relay that sends them."""
