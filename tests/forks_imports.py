"""Imports of all commands and of the daemon, for the process that they are forked off (forks.py)."""

import importlib

import httpx  # noqa: F401
import jsonpath  # noqa: F401
import rich.console
import rich.table  # noqa: F401
import websockets.sync.client  # noqa: F401
import yaml  # noqa: F401

import controller.app.daemon  # noqa: F401
from controller.cli.main import COMMANDS

for name in COMMANDS:
    importlib.import_module(f"controller.cli.commands.{name.replace('-', '_')}")
