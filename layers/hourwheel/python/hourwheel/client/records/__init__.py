"""Defines the types of requests and answers. The client ignores unknown fields, so answers may gain fields.

Types that server and client share come from ``hourwheel.model``. Messages are excluded from garbage collection
(``gc=False``): a pull has up to a thousand of them, and they hold no cycles.
"""
