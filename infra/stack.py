"""Defines one cell of the queue as a stack."""

from aws_cdk import CfnOutput, Stack, Tags
from constructs import Construct

from infra.api import Api
from infra.cells import Cells
from infra.delay import Delay
from infra.encryption import Encryption
from infra.functions import Functions
from infra.lake import Lake
from infra.observability import Observability
from infra.pipeline import Pipeline
from infra.push import Push
from infra.settings import Settings
from infra.storage import Storage
from infra.tables import Tables
from infra.urls import Urls


class HourwheelStack(Stack):
    def __init__(self, scope: Construct, settings: Settings) -> None:
        super().__init__(scope, settings.cell, description=f"Hourwheel, a message queue: cell {settings.cell}")
        encryption = Encryption(self, "Encryption", settings)
        tables = Tables(self, "Tables", settings, encryption=encryption)
        storage = Storage(self, "Storage", settings, encryption=encryption)
        lake = Lake(self, "Lake", settings, encryption=encryption)
        cells = Cells(self, "Cells", settings, encryption=encryption)
        delay = Delay(self, "Delay", settings)
        functions = Functions(
            self,
            "Functions",
            settings,
            tables=tables,
            storage=storage,
            cells=cells,
            lake=lake,
            delay=delay,
            encryption=encryption,
        )
        delay.tend_with(functions.by_name["delayed"])
        if settings.push:
            Push(self, "Push", settings, tables=tables, cells=cells, functions=functions)
        api = None
        if settings.front == "url":
            Urls(self, "Urls", settings, functions=functions)
        else:
            api = Api(self, "Api", settings, functions=functions, encryption=encryption)
        if settings.pipeline:
            delay.archive_with(functions.by_name["archive"], settings.archive_minutes)
            Pipeline(
                self,
                "Jobs",
                settings,
                lake=lake,
                delay=delay,
                failures=functions.failures,
                encryption=encryption,
            )
        Observability(self, "Observability", settings, functions=functions, api=api, encryption=encryption)
        Tags.of(self).add("hourwheel:cell", settings.cell)
        for key, value in (
            ("TablePrefix", settings.cell),
            ("BatchesBucket", storage.bucket.bucket_name),
            ("FailuresQueue", functions.failures.queue_url),
        ):
            CfnOutput(self, key, value=value)
