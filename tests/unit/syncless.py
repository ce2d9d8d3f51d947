"""Runs a process in which the kernel refuses every sync: an answer that says stored there did not wait for a sync.

Run as ``python -m tests.unit.syncless FOLDER SYNCHRONOUS`` it opens the data directory as the server does, forbids
syncs, sends a message, and prints what became of it.
"""

import ctypes
import errno
import platform
import struct
import sys
from contextlib import closing

from hourwheel.embedded.options import ServeOptions
from hourwheel.embedded.runtime import Runtime
from hourwheel.errors import HourwheelError
from hourwheel.model.messages import NewMessage

SYNCS = {"x86_64": (74, 75), "aarch64": (82, 83)}
"""The numbers of fsync and fdatasync, by machine."""

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38
_MODE_FILTER = 2
_LOAD_NUMBER = (0x20, 0, 0, 0)
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


def forbid_syncs() -> None:
    """Makes fsync and fdatasync fail in this process with EIO, by a filter of system calls (seccomp)."""
    program = [_LOAD_NUMBER]
    for number in SYNCS[platform.machine()]:
        program += [(0x15, 0, 1, number), (0x06, 0, 0, _ERRNO | errno.EIO)]
    program.append((0x06, 0, 0, _ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    described = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in ((_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_PR_SET_SECCOMP, _MODE_FILTER, described, 0, 0)):
        if libc.prctl(*call):
            raise OSError(ctypes.get_errno(), "no filter of system calls could be set")


def main() -> None:
    options = ServeOptions.model_validate({"data": sys.argv[1], "synchronous": sys.argv[2]})
    with closing(Runtime(options)) as runtime:
        runtime.deployment.subjects.put("orders")
        forbid_syncs()
        try:
            runtime.deployment.produce("orders", [NewMessage(body="x")])
        except HourwheelError as error:
            sys.stdout.write(type(error).__name__)
        else:
            sys.stdout.write("stored")


if __name__ == "__main__":
    main()
