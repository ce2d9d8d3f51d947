"""Writes the OpenAPI document of the HTTP API from the types that parse requests and answers."""
