"""Commands, one module each; `controller.cli.main` lists them."""
