"""Three backends: in the database of the site by default, in it by name, and elsewhere."""

import os
from urllib.parse import urlsplit

from unstuck import Retry

_URL = urlsplit(os.environ["SITE_DATABASE"])
USE_TZ = True
SECRET_KEY = "not one"
INSTALLED_APPS = ["django_site"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _URL.path[1:],
        "USER": _URL.username,
        "PASSWORD": _URL.password,
        "HOST": _URL.hostname,
        "PORT": _URL.port,
    }
}
_BACKEND = "unstuck.contrib.django.UnstuckBackend"
TASKS = {
    "default": {
        "BACKEND": _BACKEND,
        "QUEUES": ["default", "mail"],
        # However long a worker takes to end, it does not see the second attempt become due.
        "OPTIONS": {"retry": Retry(2, backoff=(600.0,)), "timeout": 20.0},
    },
    "named": {"BACKEND": _BACKEND, "OPTIONS": {"store": f"{os.environ['SITE_DATABASE']}?schema=other"}},
    "elsewhere": {"BACKEND": _BACKEND, "OPTIONS": {"store": os.environ["SITE_ELSEWHERE"]}},
}
