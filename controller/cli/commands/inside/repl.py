"""`paddock repl`."""

import click

from controller.cli.options import DEFAULT_NAMESPACE, namespace_option, raw_option, sandbox_name


@click.command("repl")
@click.argument("name")
@namespace_option
@click.option(
    "-c",
    "--context",
    "context",
    default="python",
    show_default=True,
    metavar="CONTEXT",
    help="The code context: python, javascript or bash for the default one of a language, or a name.",
)
@raw_option
@click.pass_context
def repl_(ctx: click.Context, name: str, namespace: str | None, context: str, raw: bool) -> None:
    """Type code into an interpreter of a sandbox that keeps its variables. In a pipe, stdin is one piece of code.

    Ctrl-C interrupts the code, Ctrl-D ends the prompt; the variables stay for the next one, and for `run_code`.
    Tab completes the names that the context has. Lines are in the history of the language.
    Pictures are shown in kitty, Ghostty, iTerm2 and WezTerm. Escape sequences are filtered as for exec.

    \b
    paddock repl quickstart
    paddock repl -c bash quickstart
    echo 'print(6 * 7)' | paddock repl quickstart
    """
    import sys

    from controller.cli.client import connect
    from controller.cli.code.contexts import CodePlace, language_of, read_cells
    from controller.cli.text.terminal import is_terminal

    place = CodePlace(connect(ctx), namespace or DEFAULT_NAMESPACE, sandbox_name(name), context, raw)
    language = language_of(place)
    if not is_terminal():
        ctx.exit(place.run(sys.stdin.read()))
    from controller.cli.code.prompt import line_editing

    with line_editing(language, place.complete):
        for code in read_cells(language, prompt=True):
            place.run(code)
