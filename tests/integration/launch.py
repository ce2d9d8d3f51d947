"""Starts servers as the command line would, each in a process of its own, for ``forked``.

Importing what a server is made of takes most of a second of a core: this process imports it once and is forked. The
socket at descriptor 0 brings requests, each with three descriptors: stdout and stderr of the server, and a pipe that
learns its process id and, once it has ended, its exit status. A server that was given a limit on the pages of its
database loses the limit at SIGUSR1: there is room again.
"""

import json
import os
import resource
import signal
import socket
import sqlite3
import sys
from contextlib import suppress
from typing import Any

from hourwheel.adapters.sqlite import store as sqlite
from hourwheel.embedded.options import ServeOptions
from hourwheel.embedded.server import serve

NO_LIMIT = 1 << 30


def limit_pages(pages: int) -> None:
    prepare = sqlite.prepare

    def limited(writer: sqlite3.Connection, *rest: Any) -> None:
        prepare(writer, *rest)
        writer.execute(f"PRAGMA max_page_count = {pages}")
        signal.signal(signal.SIGUSR1, lambda *_: writer.execute(f"PRAGMA max_page_count = {NO_LIMIT}").fetchall())

    sqlite.prepare = limited


def run_server(options: str, pages: int | None, descriptors: int | None) -> int:
    if pages is not None:
        limit_pages(pages)
    if descriptors is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    return serve(ServeOptions.model_validate_json(options))


def redirect(*descriptors: int) -> None:
    """Makes these stdin, stdout and stderr."""
    for standard, descriptor in enumerate(descriptors):
        os.dup2(descriptor, standard)


def watch_server(pid: int, status: int) -> None:
    """Reports the server's process id and exit status, then ends this process."""
    os.write(status, b"%d\n" % pid)
    _, ended = os.waitpid(pid, 0)
    os.write(status, b"%d\n" % os.waitstatus_to_exitcode(ended))
    os._exit(0)


def start(request: dict[str, Any], stdout: int, stderr: int, status: int) -> int:
    """Forks once more: only its parent can wait for a process, and the parent of them all has no time to."""
    nothing = os.open(os.devnull, os.O_RDWR)
    pid = os.fork()
    if pid == 0:
        os.close(status)
        redirect(nothing, stdout, stderr)
    else:
        redirect(nothing, nothing, nothing)
    for descriptor in (nothing, stdout, stderr):
        os.close(descriptor)
    if pid:
        watch_server(pid, status)
    return run_server(**request)


def main() -> int:
    """Returns in the processes of the servers too, whose exit status it is, so that each ends as Python does."""
    with socket.socket(fileno=os.dup(0)) as requests:
        while True:
            text, descriptors, _, _ = socket.recv_fds(requests, 65_536, 3)
            if not text:
                return 0
            if os.fork() == 0:
                break
            for descriptor in descriptors:
                os.close(descriptor)
            with suppress(ChildProcessError):
                while any(os.waitpid(-1, os.WNOHANG)):
                    pass
    return start(json.loads(text), *descriptors)


if __name__ == "__main__":
    sys.exit(main())
