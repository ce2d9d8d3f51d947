"""Delayed messages: the wheel that turns while a bucket is open, dispatch, cancel and reschedule."""
