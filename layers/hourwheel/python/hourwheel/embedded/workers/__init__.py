"""Works in threads of the server, beside its requests."""
