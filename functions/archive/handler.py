"""Lambda ``archive``."""

from hourwheel.api.archive import archiving
from hourwheel.api.services import Services

# At import: Lambda gives its initialisation more CPU than the calls.
services = Services.from_environment()
handler = services.task_handler(archiving(services.lake, services.meter.flush))
