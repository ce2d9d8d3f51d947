"""Implements the transport of Kombu, by which Celery uses Hourwheel as its broker."""
