"""Lambda ``sweep``."""

from hourwheel.api.services import Services
from hourwheel.api.sweep import sweep

# At import: Lambda gives its initialisation more CPU than the calls.
handler = Services.from_environment().task_handler(sweep)
