"""Where the API lives. Routers carry the prefix themselves: then a route's path is its whole template, for metrics."""

from controller.version import API_VERSION

PREFIX = f"/apis/{API_VERSION}"
