"""HTTP/1.1 on the event loop: strict framing, bounds on bytes, time and connections, one request at a time."""
