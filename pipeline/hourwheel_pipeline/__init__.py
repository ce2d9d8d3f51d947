"""PySpark jobs around the queue: they copy its archive into tables of a lake, check them, and send messages again."""
