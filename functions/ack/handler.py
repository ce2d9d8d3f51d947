"""Entry point of the Lambda function ``ack``."""

from hourwheel.api.ack import ack
from hourwheel.aws.services import Services

# Built at import: Lambda gives the initialisation of a function more CPU than its calls.
handler = Services.from_environment().http_handler(ack, "ack")
