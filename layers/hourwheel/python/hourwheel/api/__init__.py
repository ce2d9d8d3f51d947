"""The HTTP API as functions: an API Gateway event (HTTP API, payload 2.0) in, a response out."""
