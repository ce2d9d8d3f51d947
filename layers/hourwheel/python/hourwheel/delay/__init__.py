"""Hands delayed messages over at their time, and cancels and reschedules them."""
