"""Lambda ``push``."""

from hourwheel.api.push import pushing
from hourwheel.api.services import Services

# At import: Lambda gives its initialisation more CPU than the calls.
services = Services.from_environment()
handler = services.task_handler(pushing(services.meter.flush))
