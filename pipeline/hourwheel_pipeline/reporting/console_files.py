"""Reads the files that the report shares with the console: the styles, and the script that draws charts. The report
contains their text, because it is one file."""

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
    """Returns a module that draws the charts of the page. The module imports nothing: it is the texts of the console's
    modules, one after the other."""
    own = (files(__package__) / "report.js").read_text("utf-8")
    return Markup(_IMPORT.sub("", _text("scales.js") + _text("charts.js")) + own)


def _text(name: str) -> str:
    return (files("hourwheel.console") / "static" / name).read_text("utf-8")
