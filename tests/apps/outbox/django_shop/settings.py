"""Defines the settings of the example project. The test names its database and its server."""

import os

INSTALLED_APPS = ["shop", "hourwheel.django"]
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["SHOP_SQLITE"]}
    if "SHOP_SQLITE" in os.environ
    else {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ["SHOP_NAME"],
        "HOST": os.environ["SHOP_HOST"],
        "USER": "postgres",
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
SECRET_KEY = "of an example"
HOURWHEEL = {"URL": os.environ["SHOP_HOURWHEEL"]}
