"""Which runc has CVE-2024-21626."""

import pytest

from controller.policy.host.runc import is_fixed


@pytest.mark.parametrize(
    ("version", "package", "mended"),
    [
        ("1.1.12", "", True),
        ("1.1.11", "", False),
        ("1.2.0-rc.1", "", True),
        ("v1.1.4", "", False),
        ("2.0.0", "", True),
        ("1.1.5+ds1", "1.1.5+ds1-1+deb12u1", True),
        ("1.1.5+ds1", "1.1.5+ds1-1", False),
        ("1.1.5+ds1", "1.1.5+ds1-1+b1", False),
        ("1.1.5+ds1", "", False),
        ("1.0.0-rc93", "1.0.0~rc93+ds1-5+deb11u2", False),
        ("1.0.0-rc93", "1.0.0~rc93+ds1-5+deb11u10", True),
        ("1.1.7", "1.1.7-0ubuntu1~22.04.1", False),
        ("1.1.7", "1.1.7-0ubuntu1~22.04.2", True),
        ("1.1.15", "1.1.15+ds1-2", True),
        ("", "1:1.1.15-1", True),
        ("unknown", "", None),
        ("", "", None),
    ],
)
def test_fixed_versions(version: str, package: str, *, mended: bool | None) -> None:
    assert is_fixed(version, package) is mended
