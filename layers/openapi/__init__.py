"""Writes the OpenAPI document of the HTTP API from the types that parse requests and answers, and the tables of
settings in the documentation from the records that declare them.

The document is a file in the package. Made when it is asked for, it would load the client's records and the generator
in a function. Records of the client describe the answers, because the server encodes some of them from dictionaries:
schemathesis compares a server with the document. A link has no ``requestBody``, because the parser of openapi-generator
refuses the whole document for one that is no text.
"""
