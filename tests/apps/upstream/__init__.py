"""Runs the tests that Kombu, Celery and Dramatiq have for their own brokers on Hourwheel."""
