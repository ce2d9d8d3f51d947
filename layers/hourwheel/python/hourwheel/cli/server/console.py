"""``hourwheel console``"""

import errno
import os
import sys
import tempfile
import webbrowser
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hourwheel.cli.output import write_error
from hourwheel.cli.settings import advice_of, settings_of, to_server
from hourwheel.system import SystemIds

if TYPE_CHECKING:
    from hourwheel.client.errors import AnswerError


def console(
    ctx: typer.Context,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of this machine to serve the pages on. 0: a free one.")
    ] = 0,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Show everything, and refuse every call that changes something.")
    ] = False,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the browser; the address is printed in any case.")
    ] = True,
) -> None:
    """Serve the console on this machine, for any deployment, with your own token or AWS credentials.

    Example: hourwheel console --url http://127.0.0.1:7420 --read-only
    """
    # Imported here, as the other commands need no server.
    from hourwheel.client.transport.http import begin
    from hourwheel.embedded.browser.console_server import Console, serve_console

    settings = settings_of(ctx)
    endpoint, codec, _ = to_server(begin, settings)
    chosen = Console(
        url=settings.url,
        endpoint=endpoint,
        token=settings.token,
        signer=codec.signer,
        port=port,
        read_only=read_only,
        secret=SystemIds().token().hex(),  # keeps other users of this machine, and other pages, from making calls
    )

    folder = tempfile.TemporaryDirectory(prefix="hourwheel-console-")

    def opened(address: str) -> None:
        sys.stdout.write(f"console of {settings.url}: {address}\n")
        sys.stdout.flush()  # a program that reads the address from a pipe waits for it
        if browser and _has_screen():
            webbrowser.open(_page(Path(folder.name), address).as_uri())

    try:
        with folder:
            serve_console(chosen, opened=opened, warn=_warn)
    except OSError as error:
        advice = " (--port takes another one)" if error.errno == errno.EADDRINUSE else ""
        write_error(f"cannot listen on port {port}: {error.strerror or error}{advice}")
        raise typer.Exit(1) from error


def _page(folder: Path, address: str) -> Path:
    """Writes a page that leads to the address, and that only this user may read: every user of this machine sees the
    command line of a browser."""
    page = folder / "console.html"
    with os.fdopen(os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(address)}">\n')
    return page


def _warn(error: "AnswerError") -> None:
    write_error(f"{advice_of(error)}; the console goes on, and shows this too")


def _has_screen() -> bool:
    """Returns whether this machine has a screen. Without one, a browser of text would open in this terminal."""
    return sys.platform in {"darwin", "win32"} or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
