"""Entry point of the Lambda function ``sweep``."""

from hourwheel.api.services import Services
from hourwheel.api.sweep import sweep

# Built at import: Lambda gives the initialisation of a function more CPU than its calls.
handler = Services.from_environment().task_handler(sweep)
