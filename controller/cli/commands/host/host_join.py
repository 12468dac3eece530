"""`paddock host join`: write what a second host needs to share this store."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from controller.cli.errors import CliError
from controller.cli.text.output import say
from controller.kinds.common.daemon_role import ROLES

if TYPE_CHECKING:
    from controller.cli.fleet_certificates import Pair

_INSTALLED = Path("/etc/paddock/fleet")
_DATABASE = "postgresql+psycopg://paddock@db.example.org/paddock"
_PASSWORD_FILE = "pgpass"  # noqa: S105 - its name
_SETTINGS = """\
# Settings of host {name}, one of many on one store. Add them to its /etc/paddock/paddock.toml.
host_name = {name_}
scheduler = "manual"
# A password is in a file that root alone reads (`HOST:PORT:DATABASE:USER:PASSWORD`), named by passfile=, never in here.
database_url = {database}
{roles}fleet_cert_file = {cert}
fleet_key_file = {key}
fleet_ca_file = {ca}
"""


@click.command("join")
@click.argument("name")
@click.option("--address", metavar="HOST:PORT", help="Where the other hosts' daemons reach this one.")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(ROLES),
    help="What the daemon does, if not all: api alone is one that keeps no host. May be repeated.",
)
@click.option("--folder", metavar="DIR", help="Folder to write; it must not exist. [default: NAME]")
@click.option(
    "--database-url",
    metavar="URL",
    default=_DATABASE,
    help="The PostgreSQL store that all hosts share. A password in it goes into a file of its own.",
)
@click.option(
    "--installed", metavar="DIR", default=str(_INSTALLED), show_default=True, help="The folder's place there."
)
@click.option("--ca-cert", metavar="FILE", help="Certificate of the authority. With --ca-key: made if it is absent.")
@click.option("--ca-key", metavar="FILE", help="Its private key: signs the host's certificate here, for small fleets.")
def join_(
    name: str,
    address: str | None,
    roles: tuple[str, ...],
    folder: str | None,
    database_url: str,
    installed: str,
    ca_cert: str | None,
    ca_key: str | None,
) -> None:
    """Write a folder with the settings, private key and certificate of another host of this store.

    Without --ca-key it holds a request for the certificate (host.csr), for your own authority to sign. Daemons admit
    each other by these certificates alone: keep the authority's key off the hosts.

    \b
    paddock host join b --address 10.0.0.2:9466 --ca-cert ca.pem --ca-key ca.key
    paddock host join front --role api --ca-cert ca.pem --ca-key ca.key
    """
    from controller.cli import fleet_certificates as certificates
    from controller.kinds.common.address import parse_address

    place = Path(folder or name)
    problems = _problems(name, place, database_url, ca_cert, ca_key)
    if address is None and "host" in (roles or ROLES):
        problems.append("--address: missing; say where the other hosts' daemons reach this one (HOST:PORT)")
    if "fleet" in roles and "host" not in roles:
        problems.append("--role: fleet needs host, for what belongs to no host runs on the leading one's; add it")
    try:
        if address is not None:
            parse_address(address)
    except ValueError as error:
        problems.append(f"--address: {error}")
    if problems:
        raise CliError("\n".join(problems))
    try:
        authority = _authority(ca_cert, ca_key)
        files = _settings_files(name, address, roles, database_url, Path(installed))
        if authority is None:
            pair = certificates.new_request(name)
            files |= {"host.csr": pair.cert, "host.key": pair.key}
            if ca_cert:
                files["ca.pem"] = Path(ca_cert).read_bytes()
        else:
            pair = certificates.new_certificate(authority, name)
            files |= {"host.pem": pair.cert, "host.key": pair.key, "ca.pem": authority.cert}
        place.mkdir(mode=0o700, parents=True)
        for file, data in files.items():
            _write(place / file, data)
    except OSError as error:
        raise CliError(f"{error.filename}: {error.strerror}; name other files, or free the place") from error
    except ValueError as error:
        raise CliError(f"{ca_cert}, {ca_key}: they can't sign: {error}; name PEM files that belong together") from error
    say(f"{place} written: {', '.join(sorted(files))}")
    if authority is None:
        say(
            f"have your authority sign host.csr as host.pem, with the DNS name `{name}`, for clients and servers; put"
            " the authority's own certificate beside it as ca.pem"
        )
    say(f"copy the folder to {installed} on host {name}, add its paddock.toml to the settings, and start the daemon")


def _problems(name: str, place: Path, database_url: str, ca_cert: str | None, ca_key: str | None) -> list[str]:
    """Return what is wrong with the arguments."""
    from pydantic import TypeAdapter, ValidationError

    from controller.kinds.base import Name

    problems = []
    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError:
        problems.append(f"NAME: `{name}` is not a host's name; use up to 52 lower-case letters, digits and `-`")
    if place.exists():
        problems.append(f"--folder: {place} exists; name a new one")
    if not database_url.startswith("postgresql"):  # as settings.py has it
        scheme = database_url.partition(":")[0]
        problems.append(f"--database-url: `{scheme}` is no store for several hosts; write postgresql+psycopg://...")
    if ca_key and not ca_cert:
        problems.append("--ca-cert: missing; with --ca-key name the authority's certificate, too")
    return problems


def _settings_files(
    name: str, address: str | None, roles: Sequence[str], database_url: str, installed: Path
) -> dict[str, bytes]:
    """Return the settings, and the file of the store's password if the URL has one."""
    plain, password = _without_password(database_url, installed)
    files = {"paddock.toml": _settings(name, address, roles, plain, installed).encode()}
    return files | ({_PASSWORD_FILE: password.encode()} if password else {})


def _without_password(url: str, installed: Path) -> tuple[str, str]:
    """Return the URL without its password, and the line of libpq's password file for it ("": it has none)."""
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(url)
    if parts.password is None:
        return url, ""
    user, _, place = parts.netloc.rpartition("@")
    query = f"{parts.query}&" if parts.query else ""
    plain = parts._replace(
        netloc=f"{user.partition(':')[0]}@{place}", query=f"{query}passfile={installed / _PASSWORD_FILE}"
    )
    port = place.rpartition("]")[2].partition(":")[2]
    fields = (parts.hostname, port, parts.path.lstrip("/"), parts.username, parts.password)
    texts = (unquote(str(field)) if field else "*" for field in fields)
    line = ":".join(text.replace("\\", "\\\\").replace(":", "\\:") for text in texts)
    return plain.geturl(), f"{line}\n"


def _authority(ca_cert: str | None, ca_key: str | None) -> "Pair | None":
    """Return the authority to sign with, made if neither file exists; None: the operator signs elsewhere."""
    from controller.cli import fleet_certificates as certificates

    if not ca_cert or not ca_key:
        return None
    cert, key = Path(ca_cert), Path(ca_key)
    if cert.exists() or key.exists():
        return certificates.Pair(cert.read_bytes(), key.read_bytes())
    authority = certificates.new_authority()
    _write(key, authority.key)
    _write(cert, authority.cert)
    say(f"authority made: {cert}, and {key}, which signs for every host: keep it off the hosts")
    return authority


def _write(path: Path, data: bytes) -> None:
    """Write a new file that you alone may read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(data)


def _settings(name: str, address: str | None, roles: Sequence[str], database: str, installed: Path) -> str:
    chosen = f"roles = {json.dumps(list(roles))}\n" if roles else ""
    reached = f"fleet_address = {json.dumps(address)}\n" if address else ""
    return _SETTINGS.format(
        name=name,
        name_=json.dumps(name),
        database=json.dumps(database),
        roles=chosen + reached,
        cert=json.dumps(str(installed / "host.pem")),
        key=json.dumps(str(installed / "host.key")),
        ca=json.dumps(str(installed / "ca.pem")),
    )
