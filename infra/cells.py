"""Defines the storage of the cells other than the home cell: tables and a bucket each, with its settings."""

import json
from dataclasses import dataclass

from aws_cdk import CfnOutput
from constructs import Construct

from infra.encryption import Encryption
from infra.settings import Settings
from infra.storage import Storage
from infra.tables import Tables, table_prefix


@dataclass(frozen=True)
class OtherStorage:
    tables: Tables
    storage: Storage


class Cells(Construct):
    """The storage of the cells other than the home cell. ``by_name``: by the names of the cells."""

    def __init__(self, scope: Construct, name: str, settings: Settings, *, encryption: Encryption) -> None:
        super().__init__(scope, name)
        self._settings = settings
        self.by_name = {cell: self._storage(cell, encryption) for cell in settings.cells}

    def _storage(self, cell: str, encryption: Encryption) -> OtherStorage:
        scope = Construct(self, cell)
        tables = Tables(scope, "Tables", self._settings, encryption=encryption, cell=cell)
        storage = Storage(scope, "Storage", self._settings, encryption=encryption)
        CfnOutput(scope, "BatchesBucket", value=storage.bucket.bucket_name)
        return OtherStorage(tables, storage)

    def variable(self) -> str:
        """Returns the value of the variable from which the functions open the cells."""
        return json.dumps(
            {
                cell: {
                    "prefix": table_prefix(self._settings, cell),
                    "bucket": storage.storage.bucket.bucket_name,
                    "kinds": self._settings.cells[cell].kinds,
                }
                for cell, storage in self.by_name.items()
            },
            separators=(",", ":"),
        )
