"""Builds parts of sentences that people read."""


def counted(number: int, noun: str) -> str:
    """Returns the number with its noun: "1 message", "2 messages"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def no_queue(subject: str, queue: int, queues: int) -> str:
    """Returns that a subject does not have this queue, and which it has."""
    return f"subject {subject!r} has no queue {queue}: it has {counted(queues, 'queue')}, numbered from 0"
