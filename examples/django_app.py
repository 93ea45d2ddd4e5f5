"""Django in one file: an order and the task that confirms it are stored together, or neither is.

DATABASE_URL=postgresql://user@host/shop gunicorn django_app:web
DATABASE_URL=postgresql://user@host/shop unstuck worker django_app:app
"""

import json
import os
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.db import connection, models, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, JsonResponse
from django.tasks import task
from django.urls import path

_URL = urlsplit(os.environ["DATABASE_URL"])
settings.configure(
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["*"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": _URL.path[1:],
            "USER": _URL.username,
            "PASSWORD": _URL.password,
            "HOST": _URL.hostname,
            "PORT": _URL.port,
        }
    },
    TASKS={"default": {"BACKEND": "unstuck.contrib.django.UnstuckBackend", "QUEUES": ["default", "mail"]}},
)
django.setup()

from unstuck.contrib.django import app  # noqa: E402, F401 - for the worker, and after the settings


class Order(models.Model):
    email = models.TextField()
    confirmed = models.BooleanField(default=False)

    class Meta:
        app_label = "shop"


if Order._meta.db_table not in connection.introspection.table_names():  # noqa: SLF001 - instead of migrations
    with connection.schema_editor() as editor:
        editor.create_model(Order)


@task(queue_name="mail")
def confirm(number: int) -> str:
    order = Order.objects.get(pk=number)
    order.confirmed = True  # where a shop would send its letter
    order.save()
    return f"confirmed to {order.email}"


def orders(request: HttpRequest) -> HttpResponse:
    if request.method == "GET":
        return JsonResponse(list(Order.objects.order_by("pk").values("email", "confirmed")), safe=False)
    email = json.loads(request.body)["email"]
    with transaction.atomic():
        order = Order.objects.create(email=email)
        job = confirm.enqueue(order.pk)
        if "@" not in email:
            transaction.set_rollback(True)  # undoes both
            return HttpResponseBadRequest("no address")
    return JsonResponse({"number": order.pk, "job": job.id}, status=201)


urlpatterns = [path("orders", orders)]
web = get_wsgi_application()
