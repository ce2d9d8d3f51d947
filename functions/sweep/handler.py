"""Entry point of the Lambda function ``sweep``."""

from hourwheel.api.background.sweep import sweep
from hourwheel.aws.services import Services

# Built at import: Lambda gives the initialisation of a function more CPU than its calls.
handler = Services.from_environment().task_handler(sweep, keeps_format=True)
