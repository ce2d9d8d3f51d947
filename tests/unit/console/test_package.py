"""The files of the console are in the package that pip installs, and not in the layer that Lambda loads."""

from pathlib import Path

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from hourwheel.console.files import contents
from layers.build import LEFT_OUT

ROOT = Path(__file__).parents[3]
FILES = {f"hourwheel/console/static/{name}" for name in contents() if name}


def test_the_wheel_and_the_source_package_hold_every_file() -> None:
    wheel = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert wheel >= FILES
    source = {file.distribution_path for file in SdistBuilder(str(ROOT)).recurse_included_files()}
    assert source >= {f"layers/hourwheel/python/{name}" for name in FILES}


def test_the_functions_are_deployed_without_the_console() -> None:
    assert "console" in LEFT_OUT
