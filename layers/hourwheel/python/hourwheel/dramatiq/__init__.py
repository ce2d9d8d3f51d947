"""Lets Dramatiq use Hourwheel as its broker.

from hourwheel.dramatiq import HourwheelBroker

dramatiq.set_broker(HourwheelBroker("http://127.0.0.1:7420"))
"""

from hourwheel.apps.dramatiq.broker import HourwheelBroker

__all__ = ["HourwheelBroker"]
