"""Configures the site of ``make docs``: the pages of the repository, and a reference from the docstrings. The site
loads nothing from elsewhere."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from sphinx.application import Sphinx

from hourwheel import __version__
from hourwheel.cli.app import app as command_line

project = "Hourwheel"
version = release = __version__
copyright = "the Hourwheel authors"  # noqa: A001 - Sphinx names it

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
include_patterns = ["*.md", "bench/**.md", "changelog.d/README.md", "clients/README.md", "docs/**.md"]
exclude_patterns = [".*", "build", "cdk.out", "layers", "node_modules", "pipeline", "requirements", "tests"]

html_theme = "furo"
html_title = f"Hourwheel {__version__}"
html_show_sourcelink = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "imported-members": True}
add_module_names = False
python_use_unqualified_type_names = True

myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # CHANGELOG.md and pages of one part begin below the second level

_NAVIGATION = """
```{toctree}
:hidden:
:caption: Start
docs/tutorial
docs/howto/sqs
docs/howto/celery-redis
docs/howto/rabbitmq
docs/howto/fastapi
docs/howto/django
docs/howto/sizing
```

```{toctree}
:hidden:
:caption: Use
docs/client
docs/idempotency
docs/testing
docs/api/README
docs/push
docs/celery
docs/dramatiq
docs/pipeline
docs/spark
```

```{toctree}
:hidden:
:caption: Run
docs/serving
docs/console
docs/deploy
docs/iam
docs/operating
docs/costs
```

```{toctree}
:hidden:
:caption: Reference
:glob:
docs/reference/*
```

```{toctree}
:hidden:
:caption: Understand
:glob:
docs/README
docs/architecture
docs/protocol
docs/*
docs/decisions/README
bench/README
bench/cost/README
bench/tests
CHANGELOG
changelog.d/README
RELEASE
clients/README
CONTRIBUTING
CODE_OF_CONDUCT
SECURITY
```
"""
_DECISIONS = "\n```{toctree}\n:hidden:\n:glob:\n0*\n```\n"
_API_PAGES = """
```{toctree}
:hidden:
sending
pulling
delayed
subjects
groups
progress
ordered
broadcast
dead-letters
push
messages
overview
cells
health
errors
msgpack
function-urls
openapi
```
"""
_FOLDER = re.compile(r"\]\(((?!https?:)[^)#\s]*/)\)")


def _commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _help(line: str, command: Any) -> str:
    """Returns the section of a command: its description, an example, its arguments and options."""
    about, _, example = command.help.partition("Example: ")
    rows = [
        (", ".join(getattr(parameter, "opts", ())) or parameter.name, parameter.help)
        for parameter in command.params
        if parameter.name != "help" and parameter.help
    ]
    table = "\n".join(f"| `{name}` | {text.replace('|', chr(92) + '|')} |" for name, text in rows)
    shown = " ".join(example.split())
    return f"## {line}\n\n{about.strip()}\n\n```sh\n{shown}\n```\n\n| | |\n| --- | --- |\n{table}\n"


def _source_read(sphinx: Sphinx, name: str, source: list[str]) -> None:
    """Adds the navigation and the commands to a page, and makes links to folders lead to their README."""
    folder = Path(sphinx.srcdir, name).parent
    text = _FOLDER.sub(
        lambda link: f"]({link[1]}README.md)" if (folder / link[1] / "README.md").exists() else link[0], source[0]
    )
    if name == root_doc:
        text += _NAVIGATION
    elif name == "docs/decisions/README":
        text += _DECISIONS
    elif name == "docs/api/README":
        text += _API_PAGES
    elif name == "docs/reference/command-line":
        root = typer.main.get_command(command_line)
        text += "\n".join(_help(line, command) for line, command in _commands(root, "hourwheel"))
    source[0] = text.replace("```http\n", "```text\n")  # its lexer refuses a request without version and headers


def setup(sphinx: Sphinx) -> None:
    sphinx.connect("source-read", _source_read)
