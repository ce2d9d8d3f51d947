"""``python -m hourwheel`` is ``hourwheel``."""

from hourwheel.cli.main import run

run()
