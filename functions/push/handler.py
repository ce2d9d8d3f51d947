"""Lambda ``push``."""

from hourwheel.api.push import push
from hourwheel.api.services import Services

# At import: Lambda gives its initialisation more CPU than the calls.
handler = Services.from_environment().task_handler(push)
