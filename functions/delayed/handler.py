"""Entry point of the Lambda function ``delayed``."""

from hourwheel.api.background.delayed import tending
from hourwheel.aws.services import Services

# Built at import: Lambda gives the initialisation of a function more CPU than its calls.
services = Services.from_environment()
handler = services.task_handler(tending(services.start_sweep))
