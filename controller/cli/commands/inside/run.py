"""`paddock run`."""

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from controller.cli.options import DEFAULT_NAMESPACE, DURATION, namespace_option, options_end, raw_option
from controller.cli.runs import docker_options

if TYPE_CHECKING:
    from controller.cli.runs.run import Job, SandboxRequest

F = TypeVar("F", bound=Callable[..., Any])
_SEPARATED = "controller.cli.runs.run.separated"  # True: the first positional came after `--`
_SCRIPTS = (".py", ".sh", ".pl", ".rb", ".js", ".mjs", ".cjs", ".ts", ".mts", ".tsx", ".jsx")


class _Run(click.Command):
    """Command whose options end at the first positional, as those of `docker run`; kubectl's order is known, too."""

    allow_interspersed_args = False

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        arguments = _as_docker(self, args)
        at = options_end(self, arguments)
        ctx.meta[_SEPARATED] = arguments[at : at + 1] == ["--"]
        ctx.meta["controller.cli.runs.run.words"] = (arguments[:at], arguments[at:])
        return super().parse_args(ctx, arguments)


def _as_docker(command: click.Command, arguments: Sequence[str]) -> list[str]:
    """Return kubectl's `NAME --image=IMAGE [OPTIONS] [-- COMMAND]` with the name as an option."""
    at = options_end(command, arguments)
    options, name, tail = list(arguments[:at]), list(arguments[at : at + 1]), list(arguments[at + 1 :])
    if not name or name == ["--"]:
        return list(arguments)
    later = tail[: tail.index("--")] if "--" in tail else tail
    if (later and later[0].startswith("-") and _names_image(later)) or (_names_image(options) and tail[:1] == ["--"]):
        return [*options, "--name", *name, *tail]
    return list(arguments)


def _names_image(options: Sequence[str]) -> bool:
    return any(option == "--image" or option.startswith("--image=") for option in options)


def _docker_options(command: F) -> F:
    """Add the options of `docker run` that are refused, or that a sandbox satisfies anyway; none is in the help."""

    def refuse(_ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value:
            text = value if isinstance(value, str) else ""
            raise click.UsageError(docker_options.refusal(param.opts[0], text))

    table: list[tuple[str, bool, Callable[..., Any] | None]] = [
        *((option_name, False, refuse) for option_name in docker_options.REFUSED),
        *((option_name, True, refuse) for option_name in docker_options.REFUSED_FLAGS),
        *((option_name, False, None) for option_name in (*docker_options.IDLE, *docker_options.KUBECTL)),
        *((option_name, True, None) for option_name in (*docker_options.IDLE_FLAGS, *docker_options.KUBECTL_FLAGS)),
    ]
    for number, (name, is_flag, callback) in enumerate(table):
        settings: dict[str, Any] = {"is_flag": True} if is_flag else {"multiple": callback is None}
        option = click.option(name, f"docker_{number}", hidden=True, expose_value=False, callback=callback, **settings)
        command = option(command)
    return command


@click.command("run", cls=_Run)
@click.argument("command", nargs=-1, metavar="[IMAGE] [COMMAND [ARG ...]]", type=click.UNPROCESSED)
@namespace_option
@click.option(
    "--template",
    default="",
    metavar="NAME",
    help="A SandboxTemplate; node, bun and deno are known. [default: by the script, else paddock/python:1]",
)
@click.option("--image", default="", metavar="IMAGE", help="The image where -f or -c says what to run.")
@click.option("-d", "--detach", is_flag=True, help="Print the sandbox's name and leave it running.")
@click.option("--rm", is_flag=True, help="With -d, remove it when it ends, not a day later; without, it always is.")
@click.option("--name", default="", metavar="NAME", help="Name of the sandbox. [default: run-ID]")
@click.option(
    "--level",
    default="",
    metavar="NAME",
    help="Security level: full-isolation (or none), development (listed-hosts), build (package-hosts), production "
    "(internet). [default: the template's]",
)
@click.option("--host", default="", metavar="NAME", help="The host to run on. [default: the scheduler's choice]")
@click.option("--gpus", default="", metavar="NUMBER|all|device=ID[,ID]", help="GPUs, as `docker run --gpus`.")
@click.option(
    "-m",
    "--memory",
    default="",
    metavar="SIZE",
    help="Memory limit: 512m, or 2g (2Gi, as Docker's); 2G is a spec's.",
)
@click.option("--cpus", default="", metavar="NUMBER", help="CPU limit in cores: 1.5.")
@click.option("--pids-limit", type=click.IntRange(min=1), metavar="NUMBER", help="Limit of processes and threads.")
@click.option("-v", "--volume", "volumes", multiple=True, metavar="NAME:/PATH[:ro]", help="Mount a volume; repeatable.")
@click.option("-u", "--user", default="", metavar="UID[:GID]", help="The user, by number.")
@click.option("-w", "--workdir", default="", metavar="FOLDER", help="Working directory of the command.")
@click.option("--entrypoint", default="", metavar="PROGRAM", help="The program, before COMMAND.")
@click.option("--network", "--net", default="", metavar="none", help="Only none, the default; see --level.")
@click.option("-f", "--file", "script", default="", metavar="FILE", help="A script: .py, .js, .ts, .sh, .pl or .rb.")
@click.option("-c", "--code", default="", metavar="CODE", help="Code to run: Python, or what the template speaks.")
@click.option("-i", "--stdin", "--interactive", "with_stdin", is_flag=True, help="Pass stdin to the command.")
@click.option("-t", "--tty", is_flag=True, help="Allocate a terminal for the command.")
@click.option("-e", "--env", multiple=True, metavar="NAME[=VALUE]", help="Environment variable; repeatable.")
@click.option("--env-file", "env_files", multiple=True, metavar="FILE", help="A file of NAME=VALUE lines; repeatable.")
@click.option("--restart", default="", hidden=True)
@click.option("--pull", default="", hidden=True)
@click.option(
    "--timeout",
    type=DURATION,
    metavar="DURATION",
    help="Kill the command after this time (exit code 124); 0: never. [default: the daemon's, 5m; with -t: never]",
)
@click.option(
    "--wait",
    "wait_seconds",
    type=DURATION,
    help="How long to wait until the sandbox is Ready. [default: 60s, and as long as its image is being built]",
)
@raw_option
@_docker_options
@click.pass_context
def run_(ctx: click.Context, /, command: Sequence[str], namespace: str | None, **options: Any) -> None:
    """Run one command, script or piece of code in a new sandbox, and remove it afterwards.

    The first word is the image, as for `docker run`; options end there. Without a command the image's own runs. After
    `--` the words are the command in the default image, or the arguments of -f or -c. What `docker run` can and a
    sandbox can't is refused with what to write. -v is a volume here; --verbose stands before `run`.

    A ready member of the template's pool is used if there is one. The exit code is that of the command. On a terminal,
    escape sequences in the output are filtered as for `paddock exec`.

    With -d it is the main command of a sandbox that stays: `paddock logs -f NAME`, `paddock sandbox stop NAME`,
    `paddock delete sandbox/NAME`.

    \b
    paddock run paddock/python:1 python3 -c 'print(6 * 7)'
    paddock run -c 'print(6 * 7)'
    paddock run -f script.py -- --verbose
    paddock run --template deno -c 'console.log("Hello!")'
    paddock run -d -m 256m --template bun -f script.ts
    paddock run --rm -i paddock/python:1 python3 - < script.py
    """
    positionals = _positionals(ctx, command, options)
    from controller.cli.runs import run

    request = _sandbox_request(positionals, options)
    job = _job(positionals, options)
    env = _variables(options)
    place = namespace or DEFAULT_NAMESPACE
    seconds = options["wait_seconds"]
    timeout = options["timeout"]
    if options["detach"]:
        click.echo(
            run.start_detached(
                ctx, place, request, job=job, env=env, seconds=seconds, timeout_seconds=timeout, rm=options["rm"]
            )
        )
        return
    if job.is_images_own:
        ctx.exit(
            run.run_main(
                ctx,
                place,
                request,
                job=job,
                env=env,
                seconds=seconds,
                timeout_seconds=timeout,
                raw_output=options["raw"],
            )
        )
    with run.temporary_sandbox(ctx, place, request, seconds) as sandbox:
        streams = {"with_stdin": options["with_stdin"], "tty": options["tty"], "raw_output": options["raw"]}
        exit_code = run.run_job(job, sandbox, env, timeout_seconds=timeout, working_dir=options["workdir"], **streams)
    ctx.exit(exit_code)


class _Given(NamedTuple):
    """Image and command of a command line; `images_own`: the words are arguments of the image's own program."""

    image: str
    command: tuple[str, ...]
    images_own: bool = False


def _positionals(ctx: click.Context, command: Sequence[str], options: dict[str, Any]) -> _Given:
    """Return what the positionals mean. Raises UsageError."""
    image = options["image"]
    command_words = tuple(command)
    script = bool(options["script"] or options["code"])
    if options["template"] and image:
        raise click.UsageError("--template and --image exclude each other; give one")
    if options["script"] and options["code"]:
        raise click.UsageError("nothing to run but one thing at a time; give one of -f FILE, -c CODE or a command")
    if options["detach"] and (options["with_stdin"] or options["tty"] or options["raw"]):
        raise click.UsageError("-d leaves no one to talk to; leave -i, -t and --raw out")
    if script and options["entrypoint"]:
        raise click.UsageError("--entrypoint names the program, and so do -f and -c; leave one out")
    names_image = bool(command_words) and not ctx.meta[_SEPARATED] and not image
    if command_words and not ctx.meta[_SEPARATED] and (script or options["template"]):
        raise click.UsageError(_separator_hint(ctx, script=script))
    if names_image:
        image, command_words = _image(command_words[0]), command_words[1:]
        command_words = command_words[1:] if command_words[:1] == ("--",) else command_words
        if not options["entrypoint"]:
            _check_order(image, command_words, options, ctx.command)
    if options["entrypoint"]:
        command_words = (options["entrypoint"], *command_words)
    elif (
        image
        and not script
        and (not command_words or (names_image and (options["detach"] or command_words[0].startswith("-"))))
    ):
        return _own_program(image, command_words, options)
    if not (script or command_words):
        raise click.UsageError("nothing to run; give one of IMAGE, -f FILE, -c CODE or -- COMMAND")
    return _Given(image, command_words)


def _own_program(image: str, command_words: tuple[str, ...], options: dict[str, Any]) -> _Given:
    """Return the image with arguments of its own program. Raises UsageError where somebody would talk to that."""
    if options["with_stdin"] or options["tty"]:
        raise click.UsageError(f"-i and -t need a command; write `paddock run -it {image} COMMAND`, such as sh")
    return _Given(image, command_words, images_own=True)


def _image(word: str) -> str:
    """Return the word if it can be an image. Raises UsageError, which says how to write what it is."""
    quoted = shlex.quote(word)
    if Path(word).suffix in _SCRIPTS and (Path(word).is_file() or not docker_options.is_image(word)):
        raise click.UsageError(f"{word}: a script, no image; write `paddock run -f {quoted}`")
    if docker_options.is_image(word):
        return word
    if word.startswith(("/", "./", "../", "~")):
        raise click.UsageError(
            f"{word}: can't be an image; write IMAGE before it, or `paddock run -- {quoted}` for the default image"
        )
    raise click.UsageError(f"{word}: can't be an image; for code write `paddock run -c {quoted}`")


def _check_order(image: str, command_words: Sequence[str], options: dict[str, Any], command: click.Command) -> None:
    """Raise UsageError for an option of `run` right after the image, where a program is expected."""
    own_options = {
        name
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
        for name in option.opts
    }
    if (
        options["detach"]
        or not command_words
        or command_words[0].split("=")[0][: None if command_words[0][1:2] == "-" else 2] not in own_options
    ):
        return
    if command_words[0] in ("-c", "--code", "-f", "--file"):
        line = f"paddock run --image {image} {shlex.join(command_words)}"
    else:
        line = f"paddock run {command_words[0]} ... {image}"
    raise click.UsageError(f"{command_words[0]}: options end at the image; write `{line}`")


def _separator_hint(ctx: click.Context, *, script: bool) -> str:
    """Return what to write in place of a positional before `--`."""
    before, after = ctx.meta["controller.cli.runs.run.words"]
    at = after.index("--") if "--" in after else len(after)
    remaining = [*after[:at], *after[at + 1 :]]
    line = f"`paddock run {shlex.join([*before, '--', *remaining])}`"
    if script and docker_options.is_image(after[0]):
        return f"{after[0]}: not expected before `--`; for an argument write {line}, for the image --image {after[0]}"
    return f"{after[0]}: not expected before `--`; write {line}"


def _sandbox_request(positionals: _Given, options: dict[str, Any]) -> "SandboxRequest":
    """Return the sandbox that the options describe. Raises UsageProblem."""
    from controller.cli.runs import run

    docker_options.check_network(options["network"])
    docker_options.check_restart(options["restart"])
    docker_options.check_pull(options["pull"])
    limits: dict[str, Any] = {}
    if options["memory"]:
        limits["memory"] = docker_options.memory(options["memory"])
    if options["cpus"]:
        limits["cpu"] = docker_options.cpu(options["cpus"])
    if options["pids_limit"]:
        limits["pids"] = options["pids_limit"]
    template = options["template"] if options["template"] or positionals.image else run.template_for(options["script"])
    return run.SandboxRequest(
        name=options["name"],
        template=template,
        image=positionals.image,
        level=options["level"],
        gpus=run.Gpus.parse(options["gpus"]),
        host=options["host"],
        limits=limits,
        user=docker_options.user_ids(options["user"]),
        working_dir=options["workdir"],
        volumes=tuple(docker_options.volume(volume_text) for volume_text in options["volumes"]),
    )


def _job(positionals: _Given, options: dict[str, Any]) -> "Job":
    """Return the job that the options describe. Raises UsageProblem, CliError."""
    from controller.cli.errors import UsageProblem
    from controller.cli.runs import run
    from controller.cli.text.terminal import is_terminal

    if options["tty"] and not is_terminal():
        raise UsageProblem("stdin is not a terminal; leave -t out, or run this in a terminal")
    if positionals.images_own:
        return run.Job(positionals.command, is_images_own=True)
    template = options["template"] if options["template"] or positionals.image else run.template_for(options["script"])
    return run.Job.of(
        positionals.command, options["script"], options["code"], run.runtime_of(template, positionals.image)
    )


def _variables(options: dict[str, Any]) -> dict[str, str]:
    return docker_options.environment(options["env"], options["env_files"], os.environ)
