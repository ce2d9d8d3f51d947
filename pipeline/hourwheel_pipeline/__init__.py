"""Copies the archive into tables of a lake, checks them, and sends messages again, by jobs on PySpark."""
