"""Refuses to deploy functions that must not use the tables that are there.

The functions check the format of their tables themselves, when they start. By then the deployment has replaced those
that could use the tables.
"""

from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from hourwheel.adapters.aws.dynamodb import DynamoStore
from hourwheel.cells.store_formats import check_before_deployment
from hourwheel.errors import DataVersion, HourwheelError
from hourwheel.system import SystemIds
from infra.settings import Settings, Wrong


def check_stored_formats(client: Any, settings: Settings) -> str:
    """Returns a sentence for the operator where the format of tables is not known; "" where it is, and where there are
    no tables yet. Raises ``Wrong`` for tables that this version must not use."""
    # As ``infra.tables`` names them, which is not imported here: it needs the whole CDK.
    places = {settings.cell: "the deployment", **{f"{settings.cell}.{cell}": f"cell {cell}" for cell in settings.cells}}
    unknown = ""
    for prefix, place in places.items():
        try:
            client.describe_table(TableName=f"{prefix}-meta")
            check_before_deployment(DynamoStore(client, prefix=prefix), SystemIds(), place)
        except client.exceptions.ResourceNotFoundException:
            continue  # the deployment creates the tables
        except DataVersion as error:
            raise Wrong(str(error)) from error
        except (BotoCoreError, ClientError, HourwheelError) as error:
            unknown = (
                f"the format of the tables of {place} is not known, and not checked before the deployment: {error}"
            )
    return unknown
