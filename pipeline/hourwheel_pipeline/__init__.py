"""PySpark jobs around the queue: they move its messages into a lake table, and back."""
