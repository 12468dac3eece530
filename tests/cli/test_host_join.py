"""`paddock host join`: the folder of another host, whose files the daemon takes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from cryptography import x509
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy import make_url

from controller.api.fleet.tls import FleetFiles, FleetTls
from controller.cli.main import cli
from controller.settings import load_settings


def join(*words: str) -> Result:
    return CliRunner().invoke(cli, ["host", "join", *words])


def conninfo(url: str) -> Mapping[str, Any]:
    """Return what the store's driver is given for a URL, checked by it."""
    parsed = make_url(url)
    _, options = parsed.get_dialect()().create_connect_args(parsed)
    return conninfo_to_dict(make_conninfo(**options))


def test_a_signed_host_can_start(tmp_path: Path) -> None:
    place, cert, key = tmp_path / "b", tmp_path / "ca.pem", tmp_path / "ca.key"
    signing = ("--ca-cert", str(cert), "--ca-key", str(key), "--installed", str(place))
    database = "postgresql+psycopg://u:s3c%3Aret@db/paddock"
    done = join("b", "--address", "10.0.0.2:9466", "--folder", str(place), "--database-url", database, *signing)
    assert done.exit_code == 0, done.output
    assert {path.stat().st_mode & 0o777 for path in (*place.iterdir(), key)} == {0o600}
    settings = load_settings(str(place / "paddock.toml"))
    assert (settings.host_name, settings.scheduler, settings.fleet_address) == ("b", "manual", "10.0.0.2:9466")
    assert settings.database_url == f"postgresql+psycopg://u@db/paddock?passfile={place}/pgpass"
    assert (place / "pgpass").read_text() == "db:*:paddock:u:s3c\\:ret\n"
    assert "s3c" not in (place / "paddock.toml").read_text() + done.output
    assert conninfo(settings.database_url)["passfile"] == f"{place}/pgpass", "it reaches libpq"
    assert settings.fleet_cert_file is not None
    assert settings.fleet_key_file is not None
    assert settings.fleet_ca_file is not None
    files = FleetFiles(settings.fleet_cert_file, settings.fleet_key_file, settings.fleet_ca_file)
    assert FleetTls("b", files).name == "b"

    again = join("c", "--address", "10.0.0.3:9466", "--folder", str(tmp_path / "c"), *signing)
    assert again.exit_code == 0, again.output
    assert (tmp_path / "c" / "ca.pem").read_bytes() == (place / "ca.pem").read_bytes(), "one authority signs for all"


def test_without_an_authority_a_request_is_written(tmp_path: Path) -> None:
    place = tmp_path / "b"
    done = join("b", "--address", "b.example.org:9466", "--folder", str(place))
    assert done.exit_code == 0, done.output
    assert "host.csr" in done.output
    request = x509.load_pem_x509_csr((place / "host.csr").read_bytes())
    names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["b"]
    assert not (place / "host.pem").exists()


def test_a_daemon_without_a_host_needs_no_address(tmp_path: Path) -> None:
    place, cert, key = tmp_path / "front", tmp_path / "ca.pem", tmp_path / "ca.key"
    signing = ("--ca-cert", str(cert), "--ca-key", str(key), "--installed", str(place))
    done = join("front", "--role", "api", "--folder", str(place), *signing)
    assert done.exit_code == 0, done.output
    settings = load_settings(str(place / "paddock.toml"))
    assert (settings.roles, settings.fleet_address, settings.place) == (("api",), "", "api/front")


def test_a_host_needs_its_address(tmp_path: Path) -> None:
    done = join("b", "--role", "fleet", "--folder", str(tmp_path / "b"))
    assert done.exit_code == 1
    assert "--role: fleet needs host" in done.output
    done = join("b", "--role", "host", "--folder", str(tmp_path / "b"))
    assert "--address: missing" in done.output


def test_every_bad_argument_is_said_at_once(tmp_path: Path) -> None:
    done = join(
        "No Name", "--address", "nowhere", "--folder", str(tmp_path), "--ca-key", "k", "--database-url", "sqlite:///x"
    )
    assert done.exit_code == 1
    assert "`sqlite` is no store for several hosts; write postgresql+psycopg://..." in done.output
    for entry in ("NAME:", "--address:", "--folder:", "--ca-cert:", "--database-url:"):
        assert entry in done.output
