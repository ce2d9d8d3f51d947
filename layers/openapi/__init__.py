"""Writes the OpenAPI document of the HTTP API from the types that parse requests and answers.

The document is a file in the package and in ``docs/``. Made when it is asked for, it would load pydantic, the client's
records and the generator in a function. Records of the client describe the answers, because the server encodes some of
them from dictionaries: schemathesis compares a server with the document. A link has no ``requestBody``, because the
parser of openapi-generator refuses the whole document for one that is no text.
"""
