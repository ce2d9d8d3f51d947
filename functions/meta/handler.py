"""Entry point of the Lambda function ``meta``."""

from hourwheel.api.meta import meta
from hourwheel.aws.services import Services

# Built at import: Lambda gives the initialisation of a function more CPU than its calls.
handler = Services.from_environment().http_handler(meta, "meta")
