"""Lets Celery, and any program of Kombu, use Hourwheel as its broker.

``app = Celery("shop", broker="hourwheel://localhost:7420")`` is all that an application needs: Kombu loads
``plugin`` by an entry point of this package. A program of Kombu without Celery imports this module first.
"""

from hourwheel.celery import plugin

plugin.register()
