"""Previews: pages and services of sandboxes in a browser, each port at a host name of its own, by signed links."""
