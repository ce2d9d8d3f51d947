"""Entry point of the Lambda function ``wheel``."""

from hourwheel.api.background.wheel import turning
from hourwheel.aws.services import Services

# Built at import: Lambda gives the initialisation of a function more CPU than its calls.
services = Services.from_environment()
handler = services.task_handler(turning(services.meter.flush))
