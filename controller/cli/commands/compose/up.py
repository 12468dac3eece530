"""`paddock up`: the Compose file of this folder."""

from controller.cli.commands.compose.compose import up as up_

__all__ = ["up_"]
