"""The certificates for connections between hosts, from the settings."""

from controller.api.fleet.tls import FleetFiles, FleetTls
from controller.settings import Settings


def make_fleet_tls(settings: Settings) -> FleetTls | None:
    """Return the TLS contexts of this host; None: the settings name no files. Raises FleetFilesError."""
    if not (settings.fleet_cert_file and settings.fleet_key_file and settings.fleet_ca_file):
        return None
    files = FleetFiles(settings.fleet_cert_file, settings.fleet_key_file, settings.fleet_ca_file)
    return FleetTls(settings.host_name, files)
