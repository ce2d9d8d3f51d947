"""The AWS SDK: botocore by itself. boto3 would add 10 ms to each cold start and 3 MB to the layer, for nothing."""

import threading
from functools import cache
from typing import Any

from botocore.config import Config
from botocore.session import Session, get_session

_making = threading.Lock()


@cache
def session() -> Session:
    """The one of the process."""
    return get_session()


def make_client(service: str, config: Config, *, region: str | None, endpoint_url: str | None) -> Any:
    """A client, which threads may use at once. Thread-safe, which making one with botocore is not."""
    with _making:
        return session().create_client(service, region_name=region, endpoint_url=endpoint_url, config=config)
