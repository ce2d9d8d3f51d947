"""Holds the console: pages for the browser that show every queue, delay and dead letter, and let a person act."""
