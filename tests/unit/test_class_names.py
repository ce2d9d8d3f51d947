"""A class name means one class of the library, apart from the pairs that are listed here with their reasons."""

import ast
from collections import defaultdict
from pathlib import Path

LIBRARY = Path(__file__).parents[2] / "layers/hourwheel/python/hourwheel"

WIRE = "the server builds the record, the client reads it: equal names on both sides of the wire"
ERRORS = "the server refuses with one error, the client raises the other: neither knows the other's tree"
PAIRS = {
    "AddressedMessage": WIRE,
    "ArchiveState": WIRE,
    "AttentionPage": WIRE,
    "Concern": WIRE,
    "LakeState": WIRE,
    "LakeTable": WIRE,
    "AttemptCount": WIRE,
    "CompactProduceResult": WIRE,
    "CompactPull": WIRE,
    "Conflict": ERRORS,
    "ConsumerState": WIRE,
    "ConsumerStates": WIRE,
    "DamagedRow": WIRE,
    "DeadPage": WIRE,
    "DeadReason": WIRE,
    "DeadReasons": WIRE,
    "DelayedMessage": WIRE,
    "ChosenPage": WIRE,
    "DelayedPage": WIRE,
    "DueCounts": WIRE,
    "EarlyRetries": WIRE,
    "DueCount": WIRE,
    "Group": WIRE,
    "GroupHistory": WIRE,
    "GroupOverview": WIRE,
    "GroupOverviewPage": WIRE,
    "HistoryPage": WIRE,
    "GroupTrace": WIRE,
    "Lag": WIRE,
    "Message": WIRE,
    "LatenessStep": WIRE,
    "LeaveResult": WIRE,
    "MessageBlock": WIRE,
    "MessageTrace": WIRE,
    "NotFound": ERRORS,
    "OpenLease": WIRE,
    "OpenLeases": WIRE,
    "OutboxRow": "the relay reads rows as records, and Django's model of the same table names its rows likewise",
    "OverviewPage": WIRE,
    "PeekPage": WIRE,
    "PendingCounts": WIRE,
    "Pull": WIRE,
    "PushTarget": WIRE,
    "QueueOverview": WIRE,
    "RetryCounts": WIRE,
    "RetryPolicy": WIRE,
    "ScheduledMessage": WIRE,
    "SendResult": WIRE,
    "Subject": WIRE,
    "SubjectOverview": WIRE,
    "TagFilter": WIRE,
    "TooLarge": ERRORS,
    "TraceEvent": WIRE,
    "TracePage": WIRE,
    "BucketWheel": WIRE,
    "BucketWheels": WIRE,
}


def folders_by_class() -> dict[str, list[str]]:
    """Returns, for each class, the top folder or module of each of its definitions."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(LIBRARY.rglob("*.py")):
        if path.parent.name == "migrations":
            continue  # Django looks for the class ``Migration`` in each of these modules
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(path.relative_to(LIBRARY).parts[0])
    return found


def test_no_two_classes_of_the_library_have_one_name_but_the_listed_pairs() -> None:
    twice = {name for name, folders in folders_by_class().items() if len(folders) > 1}
    assert twice == PAIRS.keys()


def test_each_listed_pair_has_one_class_in_the_client_and_one_in_the_server() -> None:
    classes = folders_by_class()
    between = [name for name, reason in PAIRS.items() if reason in (WIRE, ERRORS)]
    assert [name for name in between if (len(classes[name]), classes[name].count("client")) != (2, 1)] == []
