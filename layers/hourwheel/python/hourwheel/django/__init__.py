"""The Django app ``hourwheel.django``: add it to ``INSTALLED_APPS``, and run ``manage.py migrate``."""
