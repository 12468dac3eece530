"""Relays between a program of the user (a browser, OpenSSH) and the API."""
