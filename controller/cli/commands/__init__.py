"""One file a command; `controller.cli.main` names them."""
