"""Implements the HTTP API as functions that take an API Gateway event (HTTP API, payload 2.0) and return a response."""
