"""`paddock` and `python -m controller`."""

from controller.cli.main import cli


def main() -> None:
    """Run the command line."""
    cli(prog_name="paddock")


if __name__ == "__main__":
    main()
