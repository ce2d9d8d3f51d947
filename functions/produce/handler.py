"""Entry point of the Lambda function ``produce``."""

from hourwheel.api.produce import produce
from hourwheel.aws.services import Services

# Built at import: Lambda gives the initialisation of a function more CPU than its calls.
handler = Services.from_environment().http_handler(produce, "produce")
