"""Connects applications: task frameworks, Django, the outbox, idempotent consumers, and tests. Users import the public
names from ``hourwheel.celery``, ``hourwheel.outbox`` and so on."""
