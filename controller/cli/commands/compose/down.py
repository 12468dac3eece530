"""`paddock down`: what the Compose file of this folder runs."""

from controller.cli.commands.compose.compose import down as down_

__all__ = ["down_"]
