"""One cell of the queue as a stack."""

from aws_cdk import CfnOutput, Stack, Tags
from constructs import Construct

from infra.api import Api
from infra.delay import Delay
from infra.functions import Functions
from infra.observability import Observability
from infra.pipeline import Pipeline
from infra.push import Push
from infra.settings import Settings
from infra.storage import Storage
from infra.tables import Tables


class HourwheelStack(Stack):
    def __init__(self, scope: Construct, settings: Settings) -> None:
        super().__init__(scope, settings.cell, description=f"Hourwheel, a message queue: cell {settings.cell}")
        tables = Tables(self, "Tables", settings)
        storage = Storage(self, "Storage", settings)
        delay = Delay(self, "Delay", settings)
        functions = Functions(self, "Functions", settings, tables=tables, storage=storage, delay=delay)
        delay.sweep_with(functions.by_name["sweep"])
        if settings.push:
            Push(self, "Push", settings, tables=tables, functions=functions)
        api = Api(self, "Api", settings, functions=functions)
        Pipeline(self, "Pipeline", settings)
        Observability(self, "Observability", settings, functions=functions, api=api)
        Tags.of(self).add("hourwheel:cell", settings.cell)
        for key, value in (
            ("TablePrefix", settings.cell),
            ("SegmentsBucket", storage.bucket.bucket_name),
            ("FailuresQueue", functions.failures.queue_url),
        ):
            CfnOutput(self, key, value=value)
