"""Makes the requests of the client: addresses, connections, bodies, signatures, pauses."""
