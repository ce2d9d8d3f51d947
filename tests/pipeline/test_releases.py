"""The archive that each release has written is compacted and traced."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from hourwheel.adapters.files import FileBlobs
from tests.golden.stored import load_objects
from tests.golden.test_golden import RELEASES
from tests.pipeline.lakes import Compacted


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
def test_the_archive_of_a_release_is_in_the_lake_once(release: Path, tmp_path: Path, spark: SparkSession) -> None:
    load_objects(release / "archive", FileBlobs(tmp_path / "archive"))
    found = Compacted(tmp_path, spark)
    found.compact()
    assert found.places() == found.archived()
    bodies = {row["body"] for row in found.rows()}
    assert {"first", "second", "third", "tagged"} <= bodies
