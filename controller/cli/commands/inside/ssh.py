"""`paddock ssh`: OpenSSH's client, connected to a sandbox that has no sshd and no network."""

import os
import shutil
import sys
from pathlib import Path

import click

from controller.cli.errors import CliError
from controller.cli.options import DEFAULT_NAMESPACE, Group, Target, located, namespace_option, sandbox_name
from controller.cli.relays import ssh as ssh_client
from controller.cli.text.output import note, say

_SUBCOMMANDS = ("proxy", "setup")
_FOLDER = Path("~/.ssh")
_CONFIG, _KNOWN_HOSTS = "paddock_config", "paddock_known_hosts"


class _SshGroup(click.Group):
    """Group in which any other word than a sub-command is a sandbox."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            return "connect", self.commands["connect"], args
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0].startswith("-") and args[0] not in ("-h", "--help"):
            args = ["connect", *args]
        return super().parse_args(ctx, args)


@click.group("ssh", cls=_SshGroup, subcommand_metavar="NAME [SSH OPTIONS] [-- COMMAND]", invoke_without_command=True)
@click.pass_context
def ssh_(ctx: click.Context) -> None:
    """Work in a sandbox by SSH: a shell, a command, ports (-L, -D); after `setup` also scp, sftp, rsync, git and IDEs.

    It runs `ssh` with the daemon as its way to the sandbox, which needs no sshd and no network. Options before `--` are
    for ssh.

    \b
    paddock ssh quickstart
    paddock ssh quickstart -- uname -a
    paddock ssh quickstart -N -L 8080:localhost:80
    paddock ssh setup && scp notes.txt quickstart.paddock:
    """
    if ctx.invoked_subcommand is None:
        say(ctx.get_help())


@ssh_.command("connect", hidden=True, context_settings={"ignore_unknown_options": True, "help_option_names": []})
@namespace_option
@click.argument("name")
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def connect_(ctx: click.Context, name: str, words: tuple[str, ...], namespace: str | None) -> None:
    """Open a session in a sandbox."""
    program = _ssh_program()
    host, known_hosts = _host(ctx), _written_known_hosts(ctx)
    passes_socket = bool(located(ctx).socket)
    settings = ssh_client.options(
        str(known_hosts), host, ssh_client.proxy_command(_program(ctx)), passes_socket=passes_socket
    )
    flags = [word for name_, value in settings.items() for word in ("-o", f"{name_}={value}")]
    before, after = _divided(words)
    target = ssh_client.host_name(sandbox_name(name), namespace or DEFAULT_NAMESPACE)
    sys.stdout.flush()
    os.execv(program, ["ssh", *flags, *before, target, *after])  # noqa: S606 - the user's own ssh


def _divided(words: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return ssh's options, and the command: what follows `--`, or the first word that is none of an option."""
    given = list(words)
    at = 0
    while at < len(given) and given[at].startswith("-"):
        takes_value = len(given[at]) == 2 and given[at][1] in "BbcDEeFIiJLlmOopQRSWw"
        at += 2 if takes_value else 1
    return given[:at], given[at:]


@ssh_.command("proxy")
@click.argument("host")
@click.pass_context
def proxy_(ctx: click.Context, host: str) -> None:
    """Connect to HOST (NAME.paddock or NAME.NAMESPACE.paddock); for ssh's ProxyCommand."""
    server = located(ctx)
    sock, is_raw = ssh_client.connect(server, host)
    is_passed_on = ssh_client.pass_on(sock) if is_raw else ssh_client.pass_on_relayed(sock)
    if not is_passed_on:
        ssh_client.relay(sock, is_raw=is_raw)


@ssh_.group("key", cls=Group)
def key_() -> None:
    """Manage your public keys for the daemon's SSH port (setting ssh_address)."""


@key_.command("add")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.pass_context
def key_add_(ctx: click.Context, file: Path) -> None:
    """Add a public key: whoever has the private one acts as you at the SSH port."""
    from controller.cli.client import connect

    key = connect(ctx).request("POST", "ssh/keys", json={"publicKey": file.read_text(errors="replace")})
    say(f"{key['fingerprint']} added")


@key_.command("list")
@click.pass_context
def key_list_(ctx: click.Context) -> None:
    """List your public keys."""
    from controller.cli.client import connect
    from controller.cli.text.output import columns, say_table

    keys = connect(ctx).get("ssh/keys")["items"]
    rows = ([str(key[name]) for name in ("fingerprint", "type", "comment")] for key in keys)
    say_table(columns([["FINGERPRINT", "TYPE", "COMMENT"], *rows]))


@key_.command("remove")
@click.argument("fingerprint")
@click.pass_context
def key_remove_(ctx: click.Context, fingerprint: str) -> None:
    """Remove a public key, and end its connections."""
    from controller.cli.client import connect, segment

    connect(ctx).request("DELETE", f"ssh/keys/{segment(fingerprint)}")
    say(f"{fingerprint} removed")


@ssh_.command("setup")
@click.option("--remove", is_flag=True, help="Remove what it wrote.")
@click.option("--dry-run", is_flag=True, help="Print what it would write, and change nothing.")
@click.pass_context
def setup_(ctx: click.Context, remove: bool, dry_run: bool) -> None:
    """Teach ssh, scp, sftp, rsync, git and IDEs the hosts NAME.paddock and NAME.NAMESPACE.paddock.

    Writes ~/.ssh/paddock_config, and one Include at the top of ~/.ssh/config. Run it again after a new installation of
    the daemon: its host key is another one then.
    """
    folder = _FOLDER.expanduser()
    user_config, config, known_hosts = folder / "config", folder / _CONFIG, folder / _KNOWN_HOSTS
    include = f'Include "{config}"'
    if remove:
        _remove(user_config, include, (config, known_hosts), dry_run=dry_run)
        return
    host, passes_socket = _host(ctx), bool(located(ctx).socket)
    settings = ssh_client.options(
        str(known_hosts), host, ssh_client.proxy_command(_program(ctx)), passes_socket=passes_socket
    )
    text = "# Written by `paddock ssh setup`; it writes it anew.\nHost *.paddock\n"
    text += "".join(f"  {name} {value}\n" for name, value in settings.items())
    if dry_run:
        say(f"# {config}\n{text}# {known_hosts}\n{host.known_hosts_line}# {user_config}, first line\n{include}")
        return
    folder.mkdir(mode=0o700, exist_ok=True)
    _write(config, text)
    _write(known_hosts, host.known_hosts_line)
    before = user_config.read_text() if user_config.exists() else ""
    # At the top: ssh takes the first value that it finds.
    if include not in before.splitlines():
        _write(user_config, f"{include}\n{before}")
    say(f"{config} written; try `ssh NAME.{ssh_client.DOMAIN}`")


def is_set_up() -> bool:
    """Return True if `paddock ssh setup` was run by this user."""
    return (_FOLDER.expanduser() / _CONFIG).exists()


def _remove(user_config: Path, include: str, files: tuple[Path, ...], *, dry_run: bool) -> None:
    lines = user_config.read_text().splitlines(keepends=True) if user_config.exists() else []
    remaining_lines = [line for line in lines if line.rstrip("\n") != include]
    present = [str(file) for file in files if file.exists()]
    if dry_run:
        say("\n".join([f"would remove {file}" for file in present] or ["nothing to remove"]))
        return
    if len(remaining_lines) < len(lines):
        _write(user_config, "".join(remaining_lines))
    for file in files:
        file.unlink(missing_ok=True)
    say("removed" if present else "nothing to remove")


def _write(file: Path, text: str) -> None:
    """Write a file of ~/.ssh at once; a link stays one. Raises CliError."""
    target = file.resolve()
    new = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        new.touch(mode=0o600)
        if target.exists():
            new.chmod(target.stat().st_mode & 0o777)
        new.write_text(text)
        new.replace(target)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise CliError(f"{file}: can't be written: {error.strerror}; check its folder's owner and mode") from error


def _host(ctx: click.Context) -> ssh_client.SshHost:
    from controller.cli.client import connect

    found = connect(ctx).get("ssh")
    return ssh_client.SshHost(str(found["instance"]), str(found["hostKey"]), str(found.get("address", "")))


def _written_known_hosts(ctx: click.Context) -> Path:
    """Return the file of known hosts. A daemon without a key there gets its own; ssh refuses another one."""
    host, folder = _host(ctx), _FOLDER.expanduser()
    file = folder / _KNOWN_HOSTS
    text = file.read_text() if file.exists() else ""
    if not any(line.split(" ", 1)[0] == host.alias for line in text.splitlines()):
        folder.mkdir(mode=0o700, exist_ok=True)
        _write(file, text + host.known_hosts_line)
    elif host.known_hosts_line not in text:
        note(f"the daemon's host key is another one than in {file}; if that is expected: `paddock ssh setup`")
    return file


def _ssh_program() -> str:
    program = shutil.which("ssh")
    if program is None:
        raise CliError("ssh is not installed; install OpenSSH's client (openssh-client), or use `paddock shell NAME`")
    return program


def _program(ctx: click.Context) -> list[str]:
    """Return this program's command line, with the daemon that its options name."""
    target: Target = ctx.find_root().obj
    arguments = ssh_client.program()
    if target.address:
        arguments += ["--server", target.address]
    if target.context:
        arguments += ["--context", target.context]
    return arguments
