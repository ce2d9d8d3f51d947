"""Other users of the machine see no files of a job, and no open port without a secret."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hourwheel_pipeline.lake.locations import folder_of
from tests.processes import Child

JOB = """
import json, os, sys
from pathlib import Path
from pyspark import StorageLevel
from hourwheel_pipeline.runs.session import session

spark = session("test", master="local[2]", scratch=Path(sys.argv[1]))
kept = spark.range(1_000).repartition(2).persist(StorageLevel.DISK_ONLY)
kept.count()
spark.sparkContext.parallelize(range(100)).map(str).count()
jvm = spark.sparkContext._jvm
spilled = [str(Path(folder, name)) for folder, _, names in os.walk(sys.argv[1]) for name in names]
print(json.dumps({
    "process": jvm.ProcessHandle.current().pid(),
    "temporary": jvm.System.getProperty("java.io.tmpdir"),
    "authenticates": jvm.org.apache.spark.SparkEnv.get().securityManager().isAuthenticationEnabled(),
    "encrypts": [spark.conf.get("spark." + name) for name in ("io.encryption.enabled", "network.crypto.enabled")],
    "warehouse": spark.conf.get("spark.sql.warehouse.dir"),
    "spilled": spilled,
}), flush=True)
sys.stdin.read()
"""
LISTENS = "0A"
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "with a blank" / "scratch"
    abandoned = folder / "spark-999999999-abc"
    abandoned.mkdir(parents=True, mode=0o700)
    (abandoned / "block").write_text("of a killed job")
    (folder / f"spark-{os.getpid()}-abc").mkdir()
    return folder


@pytest.fixture(scope="module")
def seen(scratch: Path) -> dict[str, Any]:
    """Returns the report of a running job about itself, and the view of other processes of the job."""
    command = [sys.executable, "-c", JOB, str(scratch)]
    with Child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        assert job.stdin is not None
        told: dict[str, Any] = json.loads(job.stdout.readline())
        told["listens"] = listeners(told["process"])
        told["modes"] = {name.name: stat.S_IMODE(name.stat().st_mode) for name in scratch.iterdir()}
        job.stdin.close()
        assert job.wait(60) == 0
    return told


def test_spark_spills_to_a_folder_that_nobody_else_may_open(seen: dict[str, Any], scratch: Path) -> None:
    mine = f"{scratch}/spark-"
    assert seen["spilled"]
    assert all(
        str(path).startswith(mine) for path in [*seen["spilled"], seen["temporary"], folder_of(seen["warehouse"])]
    )
    assert stat.S_IMODE(scratch.stat().st_mode) & 0o022 == 0
    assert set(seen["modes"].values()) <= {0o700, 0o755}, "0755 is the neighbour's, made above"
    own = [mode for name, mode in seen["modes"].items() if name.split("-")[1] != str(os.getpid())]
    assert own == [0o700]


def test_its_ports_are_of_this_machine_alone_and_want_a_secret(seen: dict[str, Any]) -> None:
    assert seen["listens"]
    assert set(seen["listens"]) <= LOOPBACK
    assert seen["authenticates"]
    assert seen["encrypts"] == ["true", "true"]


def test_folders_go_with_their_job_and_with_the_next_one(seen: dict[str, Any], scratch: Path) -> None:
    assert [folder.name for folder in scratch.iterdir()] == [f"spark-{os.getpid()}-abc"]


def listeners(process: int) -> list[str]:
    """Returns the addresses, in hexadecimal, on which a process listens."""
    links = [os.readlink(file) for file in Path(f"/proc/{process}/fd").iterdir() if file.is_symlink()]
    sockets = {link.removeprefix("socket:[").rstrip("]") for link in links if link.startswith("socket:[")}
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]
    ]
    return [row[1].partition(":")[0] for row in rows if row[3] == LISTENS and row[9] in sockets]
