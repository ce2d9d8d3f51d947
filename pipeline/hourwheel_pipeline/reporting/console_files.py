"""Reads what the report shares with the console: its styles, and the script that draws charts. The report contains
their text, as it is one file."""

import re
from functools import cache
from importlib.resources import files

from hourwheel_pipeline.reporting.markup import Markup

_IMPORT = re.compile(r'^import [^;]* from "\./[^"]*";\n', re.MULTILINE)


@cache
def style() -> Markup:
    """Returns the styles of the console and of its charts."""
    return Markup(_text("console.css") + _text("charts.css"))


@cache
def script() -> Markup:
    """Returns a module that draws the charts of the page. It imports nothing: the texts of the modules follow one
    another."""
    own = (files(__package__) / "report.js").read_text("utf-8")
    return Markup(_IMPORT.sub("", _text("scales.js") + _text("charts.js")) + own)


def _text(name: str) -> str:
    return (files("hourwheel.console") / "static" / name).read_text("utf-8")
