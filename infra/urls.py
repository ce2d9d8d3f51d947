"""Defines a URL for each function that serves requests, in place of the HTTP API. A URL has no price and no access log.

IAM admits callers to a whole function. A token says which subjects and groups a caller may use
(``hourwheel.aws.urls``).
"""

import json

from aws_cdk import CfnOutput
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from hourwheel.api.routes import ROUTES
from infra.functions import Functions
from infra.settings import Settings

_META = "meta"
FRONTED = tuple(dict.fromkeys(route.function for route in ROUTES))
"""The functions that serve requests."""


class Urls(Construct):
    """The URLs, and the variables from which the functions know the operators and each other's URLs."""

    def __init__(self, scope: Construct, name: str, settings: Settings, *, functions: Functions) -> None:
        super().__init__(scope, name)
        urls = {
            function: lambda_.FunctionUrl(
                self,
                function.capitalize(),
                function=functions.by_name[function],
                auth_type=lambda_.FunctionUrlAuthType.AWS_IAM,
            ).url
            for function in FRONTED
        }
        for function in FRONTED:
            functions.by_name[function].add_environment("HOURWHEEL_OPERATORS", ",".join(settings.operators))
        others = {function: url for function, url in urls.items() if function != _META}
        functions.by_name[_META].add_environment("HOURWHEEL_ENDPOINTS", json.dumps(others, separators=(",", ":")))
        CfnOutput(self, "ApiUrl", value=urls[_META], description="hourwheel --url ...").override_logical_id("ApiUrl")
        for function in FRONTED:
            arn = functions.by_name[function].function_arn
            key = f"{function.capitalize()}Arn"
            CfnOutput(self, key, value=arn, description="What callers may invoke: docs/iam.md").override_logical_id(key)
