"""Lambda ``produce``."""

from hourwheel.api.produce import produce
from hourwheel.api.services import Services

# At import: Lambda gives its initialisation more CPU than the calls.
handler = Services.from_environment().http_handler(produce)
