"""Celery on Hourwheel beside Celery on Redis, with the same worker."""
