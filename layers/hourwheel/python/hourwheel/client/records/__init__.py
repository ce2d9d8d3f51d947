"""Defines the types of requests and answers. The client ignores unknown fields, so that answers may gain fields.

Types that server and client share come from ``hourwheel.model``. The garbage collector does not track messages
(``gc=False``): a pull has up to a thousand of them, and they cannot be part of a cycle.
"""
