"""Runs commands of README on a fresh machine: a new root of Debian with the packages that README names, and a clone of
this repository. ``python -m tests.verify.debian trixie 'make demo' 'make test'``.

0    all commands ended with 0
1    a command failed: its output shows why
3    this machine cannot make such a root (the user is not root, or debootstrap cannot be installed): nothing is known,
     which a workflow shows as a warning of its run
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
PASSED, FAILED, UNKNOWN = 0, 1, 3
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
COPIED = ["/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/root/.npmrc", CERTIFICATES]
"""What a fresh machine must know of this one to reach its package registries."""

_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "NODE_EXTRA_CA_CERTS": CERTIFICATES,
    "PIP_CERT": CERTIFICATES,
    "SSL_CERT_FILE": CERTIFICATES,
}
_APT = "-o Acquire::Check-Valid-Until=false"  # a mirror may keep an older state of sid
_MOUNTS = "mount --rbind /dev dev && mount -t proc proc proc && mount -t tmpfs -o mode=1777 shm dev/shm && "
_PACKAGES = re.compile(r"^sudo apt install (?P<packages>.+)$", re.MULTILINE)
_MIRROR = re.compile(r"^(?:URIs: *|deb (?:\[.*\] )?)(?P<mirror>https?://\S+/debian)/?(?: |$)", re.MULTILINE)


class NotPossible(Exception):
    """This machine cannot make a root. The message says why."""


def packages(readme: str) -> list[str]:
    """Returns the names of the Debian packages that README tells users to install."""
    named = _PACKAGES.search(readme)
    if named is None:
        raise LookupError("README has no line 'sudo apt install …'")
    return named["packages"].split()


def mirror(apt: Path = Path("/etc/apt")) -> str:
    """Returns the address from which this machine takes Debian's packages."""
    for path in sorted([*apt.glob("sources.list"), *apt.glob("sources.list.d/*")]):
        if found := _MIRROR.search(path.read_text()):
            return found["mirror"]
    raise NotPossible(f"no file below {apt} names a mirror of Debian")


def install_debootstrap() -> None:
    if os.geteuid() != 0:
        raise NotPossible("only root may make a root of Debian")
    if shutil.which("debootstrap"):
        return
    try:
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "install", "-qq", "--yes", "debootstrap"], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotPossible(f"debootstrap cannot be installed: {error}") from error


class Machine:
    """A root of Debian in a folder. Each command gets its own mounts, which end with it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def make(self, suite: str) -> None:
        """Installs Debian's smallest system. Raises ``CalledProcessError`` if debootstrap fails."""
        options = ["--variant=minbase", "--include=ca-certificates,git"]
        done = subprocess.run(
            ["debootstrap", *options, suite, str(self.root), mirror()], stdout=subprocess.PIPE, text=True
        )
        if done.returncode:
            print(done.stdout)
            done.check_returncode()
        for name in COPIED:
            if Path(name).exists():
                target = self.root / name[1:]
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(name, target)

    def clone(self) -> None:
        """Clones what is committed in this repository to /root/hourwheel."""
        subprocess.run(["git", "clone", "-q", "--no-hardlinks", ROOT, self.root / "root/hourwheel"], check=True)

    def install(self, names: Sequence[str]) -> int:
        """Installs packages of Debian without those that they only recommend, and returns apt's exit status."""
        install = "DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends"
        return self.run(f"apt-get update -qq {_APT} && {install} {' '.join(names)} > /dev/null")

    def run(self, command: str, folder: str = "/root") -> int:
        """Runs a command of the shell, and returns its exit status."""
        print(f"\n{self.root.name}: {command}", flush=True)
        inside = f"cd {folder} && {command}"
        script = f'{_MOUNTS} exec chroot . /bin/bash -c "$0"'
        isolated = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "/bin/bash", "-c", script, inside]
        return subprocess.run(isolated, cwd=self.root, env=_ENVIRONMENT, stdin=subprocess.DEVNULL).returncode


def verify(machine: Machine, suite: str, commands: Sequence[str]) -> int:
    """Makes the machine and returns the exit status of the first command that fails there, or 0."""
    install_debootstrap()
    machine.make(suite)
    machine.clone()
    if status := machine.install(packages((ROOT / "README.md").read_text())):
        return status
    for command in ["python3 --version; node --version; java -version", *commands]:
        if status := machine.run(command, "/root/hourwheel"):
            print(f"{suite}: {command!r} ended with {status}")
            return status
    return PASSED


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Runs commands of README in a new root of Debian.")
    parser.add_argument("suite", help="of Debian: trixie, sid")
    parser.add_argument("commands", nargs="+", metavar="COMMAND", help="run in the clone, one after the other")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the root in this new folder")
    options = parser.parse_args(arguments)
    try:
        if options.keep:
            status = verify(Machine(options.keep), options.suite, options.commands)
        else:
            with tempfile.TemporaryDirectory(prefix=f"hourwheel-{options.suite}-") as folder:
                status = verify(Machine(Path(folder)), options.suite, options.commands)
    except NotPossible as error:
        print(f"{options.suite}: nothing is known, because {error}", file=sys.stderr)
        if os.environ.get("GITHUB_ACTIONS"):
            print(f"::warning title=README on {options.suite} was not tested::{error}", flush=True)
        return UNKNOWN
    return FAILED if status else PASSED


if __name__ == "__main__":
    sys.exit(main())
