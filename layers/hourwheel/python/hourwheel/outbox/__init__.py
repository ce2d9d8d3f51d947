"""Sends messages in the transaction of the caller's own data: a row of the outbox, which a relay sends once the
transaction is committed."""
