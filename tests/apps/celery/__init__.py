"""Tests Hourwheel as the broker of Kombu and Celery."""
