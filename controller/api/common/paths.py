"""Paths of routes that middleware treats in a way of their own."""

import re

from controller.api.common.models import PREFIX

PROXIED = re.compile(PREFIX + r"/namespaces/[^/]+/sandboxes/[^/]+/proxy/.*")


STREAMED = re.compile(
    PREFIX
    + r"/(namespaces/[^/]+/[^/]+/[^/]+/files(/archive)?|namespaces/[^/]+/sandboxsnapshots/[^/]+/archive|images/build)|"
    + PROXIED.pattern
)

DISCOVERY = "/sd/hosts"
