"""Defines the HTTP API: one route for each entry of ``hourwheel.api.routes``, all of them signed."""

import json

from aws_cdk import CfnOutput, RemovalPolicy, Stack
from aws_cdk import aws_apigatewayv2 as apigateway
from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_logs as logs
from aws_cdk.aws_apigatewayv2_authorizers import HttpIamAuthorizer
from aws_cdk.aws_apigatewayv2_integrations import HttpLambdaIntegration
from constructs import Construct

from hourwheel.api.routes import ROUTES
from infra.encryption import Encryption
from infra.functions import Functions, keep_days
from infra.settings import Settings

_ACCESS_LOG = {
    "requestId": "$context.requestId",
    "time": "$context.requestTime",
    "routeKey": "$context.routeKey",
    "path": "$context.path",
    "status": "$context.status",
    "latency": "$context.responseLatency",
    "integrationLatency": "$context.integrationLatency",
    "responseBytes": "$context.responseLength",
    "error": "$context.error.responseType",
    "integrationError": "$context.integrationErrorMessage",
    "caller": "$context.identity.userArn",
    "sourceIp": "$context.identity.sourceIp",
}


_PRODUCING, _POLLING = "produce", "pull"


def _route_settings(settings: Settings) -> dict[str, dict[str, int]]:
    """Sets separate throttles for producing and polling, so that neither uses up the requests of the other."""
    limits = {
        _PRODUCING: (settings.throttle_rate, settings.throttle_burst),
        _POLLING: (settings.pull_rate or settings.throttle_rate, settings.pull_burst or settings.throttle_burst),
    }
    return {
        route.key: {
            "ThrottlingRateLimit": limits[route.function][0],
            "ThrottlingBurstLimit": limits[route.function][1],
        }
        for route in ROUTES
        if route.function in limits
    }


class Api(Construct):
    """The HTTP API of a cell. ``http``: the API. ``log_group``: its access log, a JSON line for each request."""

    def __init__(
        self, scope: Construct, name: str, settings: Settings, *, functions: Functions, encryption: Encryption
    ) -> None:
        super().__init__(scope, name)
        self.http = apigateway.HttpApi(
            self,
            "Http",
            api_name=settings.cell,
            create_default_stage=False,
            # An operator certifies and watches a domain name: beside it the API has no second address.
            disable_execute_api_endpoint=settings.domain_name is not None,
            default_authorizer=HttpIamAuthorizer(),
        )
        # One permission for each function: the permissions of its routes together would allow the same.
        integrations = {
            function: HttpLambdaIntegration(
                function.capitalize(), functions.by_name[function], scope_permission_to_route=False
            )
            for function in {route.function: None for route in ROUTES}
        }
        self._routes = [
            added
            for route in ROUTES
            for added in self.http.add_routes(
                path=route.template,
                methods=[apigateway.HttpMethod(route.method)],
                integration=integrations[route.function],
            )
        ]
        infrequent = settings.access_log_class == "infrequent"
        self.log_group = logs.LogGroup(
            self,
            "AccessLogInfrequent" if infrequent else "AccessLog",
            # With this prefix the log needs no entry in the account's one policy for delivered logs, which is soon
            # full. The class of a log group cannot change: another class is another log group.
            log_group_name=f"/aws/vendedlogs/{settings.cell}/api{'-infrequent' if infrequent else ''}",
            log_group_class=logs.LogGroupClass.INFREQUENT_ACCESS if infrequent else None,
            removal_policy=RemovalPolicy.DESTROY,
            encryption_key=encryption.key,
        )
        keep_days(self.log_group, settings.log_days)
        self._stage(settings)
        self._outputs(settings)

    def _stage(self, settings: Settings) -> None:
        stage = apigateway.HttpStage(
            self,
            "Stage",
            http_api=self.http,
            auto_deploy=True,
            throttle=apigateway.ThrottleSettings(
                rate_limit=settings.throttle_rate, burst_limit=settings.throttle_burst
            ),
            domain_mapping=self._domain(settings.domain_name, settings.certificate_arn),
        )
        resource = stage.node.default_child
        assert isinstance(resource, apigateway.CfnStage)
        resource.access_log_settings = apigateway.CfnStage.AccessLogSettingsProperty(
            destination_arn=self.log_group.log_group_arn, format=json.dumps(_ACCESS_LOG, separators=(",", ":"))
        )
        resource.route_settings = _route_settings(settings)
        # API Gateway refuses settings of a route that does not exist yet.
        stage.node.add_dependency(*self._routes)

    def _domain(self, name: str | None, certificate_arn: str | None) -> apigateway.DomainMappingOptions | None:
        if name is None or certificate_arn is None:
            return None
        certificate = acm.Certificate.from_certificate_arn(self, "Certificate", certificate_arn)
        domain = apigateway.DomainName(self, "Domain", domain_name=name, certificate=certificate)
        CfnOutput(
            self, "DomainTarget", value=domain.regional_domain_name, description=f"What the DNS entry {name} points to"
        ).override_logical_id("DomainTarget")
        return apigateway.DomainMappingOptions(domain_name=domain)

    def _outputs(self, settings: Settings) -> None:
        arn = Stack.of(self).format_arn(service="execute-api", resource=self.http.api_id)
        for key, value, description in (
            (
                "ApiUrl",
                f"https://{settings.domain_name}" if settings.domain_name else self.http.api_endpoint,
                "hourwheel --url ... --sign aws",
            ),
            ("ApiId", self.http.api_id, "Dimension ApiId of its metrics"),
            ("ApiArn", f"{arn}/$default", "hourwheel policy producer|consumer --api-arn ..."),
        ):
            CfnOutput(self, key, value=value, description=description).override_logical_id(key)
