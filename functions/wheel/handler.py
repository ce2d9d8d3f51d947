"""Lambda ``wheel``."""

from hourwheel.api.services import Services
from hourwheel.api.wheel import turning

# At import: Lambda gives its initialisation more CPU than the calls.
services = Services.from_environment()
handler = services.task_handler(turning(services.meter.flush))
