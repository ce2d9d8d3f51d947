"""Compares Celery on Hourwheel with Celery on Redis, with the same worker."""
