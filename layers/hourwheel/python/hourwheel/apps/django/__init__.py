"""Implements the Django app ``hourwheel.django``: models, migrations, and the command of the relay."""
