"""Hourwheel: a durable message queue made of serverless parts."""

__version__ = "0.1.0"
