"""Refuses to deploy functions that must not use the tables that are there.

The functions check the format of their tables themselves, when they start. By then the deployment has replaced those
that could use the tables. ``make repair-format`` replaces records of the format that cannot be read.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from hourwheel.adapters.aws.clients import make_client
from hourwheel.adapters.aws.dynamodb import DynamoStore
from hourwheel.cells.store_formats import check_before_deployment, repair_format
from hourwheel.errors import Corrupt, DataVersion, HourwheelError
from hourwheel.system import SystemIds
from infra.settings import Settings, Wrong, operator_context


def check_stored_formats(client: Any, settings: Settings) -> str:
    """Returns a sentence for the operator for each place whose format is not known; "" where all are, and where there
    are no tables yet. Raises ``Wrong`` for tables that this version must not use, and for a damaged record."""
    unknown = []
    for prefix, place in _places(settings):
        try:
            client.describe_table(TableName=f"{prefix}-meta")
            check_before_deployment(DynamoStore(client, prefix=prefix), SystemIds(), place)
        except client.exceptions.ResourceNotFoundException:
            continue  # the deployment creates the tables
        except (Corrupt, DataVersion) as error:
            raise Wrong(str(error)) from error
        except (BotoCoreError, ClientError, HourwheelError) as error:
            unknown.append(
                f"the format of the tables of {place} is not known, and not checked before the deployment: {error}"
            )
    return "\n".join(unknown)


def repair_stored_formats(client: Any, settings: Settings) -> list[str]:
    """Stores the format of this version where a record of the format cannot be read. Returns the places."""
    return [
        place for prefix, place in _places(settings) if repair_format(DynamoStore(client, prefix=prefix), SystemIds())
    ]


def _places(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yields the prefix of the tables of each cell, as ``infra.tables`` forms it, and what sentences call the cell."""
    # Not imported from there: that needs the whole CDK.
    yield settings.cell, "the deployment"
    for cell in settings.cells:
        yield f"{settings.cell}.{cell}", f"cell {cell}"


def main(arguments: Sequence[str]) -> int:
    config = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 2})
    client = make_client("dynamodb", config, region=os.environ.get("AWS_REGION"), endpoint_url=None)
    try:
        settings = Settings.read(operator_context(arguments, Path("cdk.context.json")))
        repaired = repair_stored_formats(client, settings)
    except (Wrong, BotoCoreError, ClientError, HourwheelError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write("".join(f"repaired the record of the format of {place}\n" for place in repaired))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
