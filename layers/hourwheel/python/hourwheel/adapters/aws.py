"""The AWS SDK: botocore by itself. boto3 would add 10 ms to each cold start and 3 MB to the layer, for nothing."""

from functools import cache

from botocore.session import Session, get_session


@cache
def session() -> Session:
    """The one of the process. Clients may be used by threads at once, but not made by them at once."""
    return get_session()
