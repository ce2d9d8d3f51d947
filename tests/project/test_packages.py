"""The source package and the wheel hold what users need, and nothing else; the wheel works where it is installed."""

import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterable
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest

from hourwheel import __version__
from tests.docs.pages import PAGES, examples
from tests.rooms import LIBRARY, ROOT

PACKAGES = {
    LIBRARY: "hourwheel",
    **{Path("pipeline", name): name for name in ("hourwheel_pipeline", "pyspark_hourwheel")},
}
INFO = f"hourwheel-{__version__}.dist-info"


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def build(target: str, source: Path, folder: Path) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", folder, cwd=source)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


def held(wheel: Path) -> dict[str, bytes]:
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def sources() -> Iterable[tuple[str, Path]]:
    """Yields each file of the packages with its name in the wheel."""
    for folder, package in PACKAGES.items():
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                yield f"{package}/{path.relative_to(ROOT / folder)}", path


def metadata(wheel: Path) -> Message:
    return message_from_bytes(held(wheel)[f"{INFO}/METADATA"])


def described(wheel: Path) -> str:
    text = metadata(wheel).get_payload(decode=True)
    assert isinstance(text, bytes)
    return text.decode()


def test_the_wheel_holds_the_files_of_the_packages_and_no_other(wheel: Path) -> None:
    files = {name: text for name, text in held(wheel).items() if not name.startswith(f"{INFO}/")}
    assert files == {name: path.read_bytes() for name, path in sources()}
    assert {"hourwheel/console/static/index.html", "hourwheel/api/openapi.json", "hourwheel/py.typed"} <= set(files)
    assert [name for name in files if {"tests", "__pycache__"} & set(name.split("/"))] == []


def test_the_source_package_holds_what_the_wheel_is_made_of(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    assert {path.name for path in source.iterdir()} == {
        "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", ".gitignore", "hatch_build.py",
        "layers", "pipeline", "pyproject.toml",
    }  # fmt: skip
    assert held(build("wheel", source, tmp_path / "again")) == held(wheel)


def test_the_metadata_say_what_the_project_says(wheel: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    told = metadata(wheel)
    assert (told["Name"], told["Version"], told["Requires-Python"]) == ("hourwheel", __version__, ">=3.11")
    assert (told["License-Expression"], told["License-File"]) == ("Apache-2.0", "LICENSE")
    assert f"{INFO}/licenses/LICENSE" in held(wheel)
    supported = [f"Programming Language :: Python :: 3.{minor}" for minor in range(11, 15)]
    assert [name for name in told.get_all("Classifier", []) if "Python :: 3" in name] == supported
    urls = dict(line.split(", ") for line in told.get_all("Project-URL", []))
    assert urls == project["urls"]
    assert {"Homepage", "Documentation", "Changelog", "Security"} <= set(urls)


def test_each_link_of_the_description_leads_into_the_repository_at_this_version(wheel: Path) -> None:
    told = metadata(wheel)
    assert told["Description-Content-Type"] == "text/markdown"
    description = described(wheel)
    targets = re.findall(r"\]\(([^)\s]+)\)", description)
    base = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Homepage"]
    elsewhere = [target for target in targets if not target.startswith((f"{base}/", "#"))]
    assert elsewhere == []
    files = [re.fullmatch(rf"{base}/(blob|raw)/v{__version__}/([^#]+)(#.*)?", target) for target in targets]
    assert [file[2] for file in files if file and not (ROOT / file[2]).is_file()] == []
    assert f"{base}/blob/v{__version__}/docs/tutorial.md" in targets
    assert "![The overview of the console" in description
    assert f"({base}/raw/v{__version__}/docs/console.png)" in description


def test_the_description_is_the_readme_but_for_its_links(wheel: Path) -> None:
    def without_links(text: str) -> str:
        return re.sub(r"\]\([^)\s]+\)", "]", text).strip()

    assert without_links(described(wheel)) == without_links((ROOT / "README.md").read_text())


def test_each_address_of_the_project_leads_into_its_repository() -> None:
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    base = urls.pop("Homepage")
    files = [url.removeprefix(f"{base}/blob/main/") for url in urls.values()]
    assert [name for name in files if not (ROOT / name).is_file()] == []


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    install = ["install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--target"]
    run(sys.executable, "-m", "pip", *install, folder, wheel)
    return folder


def run_installed(installed: Path, code: str, *arguments: str) -> str:
    """Runs code with the installed wheel. Without the site there is no way to the library of this repository; the
    dependencies come behind the wheel."""
    site = next(path for path in sys.path if path.endswith("site-packages"))
    start = f"import sys; sys.path[:0] = {[str(installed), site]!r}\n"
    return run(sys.executable, "-S", "-c", start + code, *arguments, cwd=installed)


def test_the_installed_wheel_tells_its_version(installed: Path) -> None:
    code = "import hourwheel; print(hourwheel.__file__); import hourwheel.cli.main as main; main.run()"
    file, version = run_installed(installed, code, "--version").splitlines()
    assert Path(file).is_relative_to(installed)
    assert version == f"hourwheel {__version__}"
    assert (installed / "bin/hourwheel").is_file()


PUBLIC = ("celery", "django", "dramatiq", "idempotency", "outbox", "policies", "testing")
"""Users import these; the modules behind them lie in ``apps`` and ``aws``."""
_IMPORT = re.compile(r"^(?:from hourwheel[\w.]* import [\w, ]+|import hourwheel[\w.]*)$", re.MULTILINE)
_NAME = re.compile(rf"\bhourwheel\.(?:{'|'.join(PUBLIC)})\b(?:\.\w+)*")


def test_each_import_of_the_docs_works_where_the_wheel_is_installed(installed: Path) -> None:
    imports = sorted({line for page in PAGES for text in examples(page, "python") for line in _IMPORT.findall(text)})
    names = sorted({name for page in PAGES for name in _NAME.findall(page.read_text())})
    assert {name.split(".")[1] for name in names} == set(PUBLIC)
    code = "\n".join([*imports, "import pkgutil", *(f"pkgutil.resolve_name({name!r})" for name in names)])
    run_installed(installed, code)


def test_django_finds_the_app_of_the_installed_wheel(installed: Path) -> None:
    code = """
import django
from django.conf import settings
databases = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
settings.configure(INSTALLED_APPS=["hourwheel.django"], DATABASES=databases)
django.setup()
from django.core.management import call_command, get_commands
call_command("makemigrations", "hourwheel", check=True, verbosity=0)
call_command("migrate", verbosity=0)
from hourwheel.django.models import ProcessedMessage
print(ProcessedMessage._meta.label, ProcessedMessage.objects.count(), "hourwheel_relay" in get_commands())
"""
    assert run_installed(installed, code).split() == ["hourwheel.ProcessedMessage", "0", "True"]


def test_celery_finds_the_transport_of_the_installed_wheel(installed: Path) -> None:
    code = """
from celery import Celery
transport = Celery("shop", broker="hourwheel://127.0.0.1:7420").connection().transport
print(sys.modules[type(transport).__module__].__file__)
"""
    assert Path(run_installed(installed, code).strip()).is_relative_to(installed)
