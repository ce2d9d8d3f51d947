"""Serves HTTP/1.1 on the event loop, with strict framing and with bounds on bytes, time and connections. Each
connection has one request at a time."""
