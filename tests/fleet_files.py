"""Certificates of hosts for tests: an authority, and files signed by it."""

from pathlib import Path
from typing import Any

from controller.api.fleet.tls import FleetFiles, FleetTls
from controller.cli.fleet_certificates import Pair, new_authority, new_certificate


class Authority:
    """An authority with its certificate in that folder, which signs for hosts."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self.pair = folder, new_authority()
        self.file = folder / "ca.pem"
        self.file.write_bytes(self.pair.cert)

    def files(self, host: str, folder: str = "", *, trusts: Path | None = None, **more: Any) -> FleetFiles:
        """Return the files of a host; of that folder, if the host has others."""
        place = self._folder / (folder or host)
        place.mkdir(exist_ok=True)
        fleet_files = FleetFiles(place / "cert.pem", place / "key.pem", trusts or self.file)
        write_pair(fleet_files, new_certificate(self.pair, host, **more))
        return fleet_files

    def tls(self, host: str, **more: Any) -> FleetTls:
        return FleetTls(host, self.files(host, **more))


def write_pair(files: FleetFiles, pair: Pair) -> None:
    """Write certificate and key, as a renewal does: the key first."""
    files.key.touch(mode=0o600)
    files.key.write_bytes(pair.key)
    files.cert.write_bytes(pair.cert)
