"""Names the wake-up queues of groups, for the functions that make them and for the policies of consumers.

    hourwheel-wake-{deployment}_{digest of subject and group}_{digest of their generations}

SQS allows 80 characters. A policy names the first digest, which an operator can compute, and leaves the second one
open.
"""

import hashlib
from functools import lru_cache

from hourwheel.model.groups import Group

_PREFIX = "hourwheel-wake-"
_DIGITS = 16  # 64 bits: enough for all groups of a deployment, and the name stays within the 80 characters of SQS


def queue_prefix(deployment: str) -> str:
    """Returns the prefix of the names of all wake-up queues of a deployment. It ends with an underscore, which no name
    of a deployment contains, so that no queue of another one has this prefix."""
    return f"{_PREFIX}{deployment}_"


def group_prefix(subject: str, group: str) -> str:
    """Returns the prefix of the names of a group's wake-up queues, without the prefix of the deployment."""
    return f"{_digest(subject, group)}_"


def queue_name(group: Group) -> str:
    """Returns the name of the group's wake-up queue, without the prefix of the deployment. A group that is created
    again gets another name, because SQS refuses the name of a deleted queue for a minute."""
    own = _digest(str(group.subject_generation), group.member)
    return f"{group_prefix(group.subject, group.shared_name)}{own}"


@lru_cache(maxsize=4_096)  # each pull of a consumer names its queue; half a megabyte
def _digest(*parts: str) -> str:
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:_DIGITS]
