"""Every error the library raises, and what its caller should do about it.

HourwheelError
├── Rejected            the request is wrong: fix it, then send it again      4xx
│   ├── NotFound        what it names does not exist                          404
│   ├── Conflict        it contradicts what is stored                         409
│   ├── TooLarge        it is over a limit                                    413
│   └── UnknownEncoding its body is encoded in a way that is not read         415
├── Unavailable         nothing is wrong with the request: send it again      503
│   ├── Throttled       the store refused it unseen: certainly no effect
│   └── OutcomeUnknown  the answer was lost: it may have had its effect
├── Broken              only a person can mend it: stop                       500
│   ├── Corrupt         stored bytes are not what was written
│   ├── Lost            the store has fewer transactions than it had
│   ├── StorageFull     no room is left on the volume                         507
│   └── DataVersion     the data was written by another version
├── Sealed              the log takes no more rows (protocol)
└── Filled              a reserved row was filled by a reader (protocol)
"""

import msgspec

UNDECODABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""What decoding bytes raises that are damaged: text that is not UTF-8 is a ``ValueError``, lists in lists in lists
without end are a ``RecursionError``."""


class HourwheelError(Exception):
    """Root of the tree."""


class Rejected(HourwheelError):
    """The request cannot be served as it is.

    ``slug`` is stable and names the kind of mistake; ``field`` is the JSON path of the culprit,
    if there is one; the message says what was wrong and what to do.
    """

    status = 400

    def __init__(self, slug: str, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.slug = slug
        self.field = field


class NotFound(Rejected):
    status = 404


class Conflict(Rejected):
    status = 409


class TooLarge(Rejected):
    status = 413


class UnknownEncoding(Rejected):
    status = 415


class Unavailable(HourwheelError):
    """The store did not answer in time. Nothing is known to be wrong with the request."""


class Throttled(Unavailable):
    """The store refused the call before it had any effect."""


class OutcomeUnknown(Unavailable):
    """The answer was lost: the call may or may not have had its effect."""


class Broken(HourwheelError):
    """Trying again will not help."""


class Corrupt(Broken):
    pass


class Lost(Broken):
    pass


class StorageFull(Broken):
    pass


class DataVersion(Broken):
    def __init__(self, *, expected: int, found: int) -> None:
        super().__init__(
            f"the data directory has format {found}, and this version of Hourwheel reads format {expected}:"
            " start the version that wrote it, or use another directory"
        )
        self.expected = expected
        self.found = found


class Sealed(HourwheelError):
    """The log was sealed: its end is fixed, nothing more is accepted."""


class Filled(HourwheelError):
    """A reserved row was filled before its batch arrived: reserve another one."""
