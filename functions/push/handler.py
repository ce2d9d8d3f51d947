"""Entry point of the Lambda function ``push``."""

from hourwheel.api.background.push import pushing
from hourwheel.aws.services import Services

# Built at import: Lambda gives the initialisation of a function more CPU than its calls.
services = Services.from_environment()
handler = services.task_handler(pushing(services.meter.flush))
