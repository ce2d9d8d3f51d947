"""Entry point of the Lambda function ``wheel``."""

from hourwheel.api.services import Services
from hourwheel.api.wheel import turning

# Built at import: Lambda gives the initialisation of a function more CPU than its calls.
services = Services.from_environment()
handler = services.task_handler(turning(services.meter.flush))
