"""Entry point of the Lambda function ``archive``."""

from hourwheel.api.background.archive import archiving
from hourwheel.aws.services import Services

# Built at import: Lambda gives the initialisation of a function more CPU than its calls.
services = Services.from_environment()
handler = services.task_handler(archiving(services.lake, services.meter.flush))
