"""Sandboxes of every level in the lab, equal except for their level, and helpers for them."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.kinds.common.labels import container_name
from controller.policy.levels.levels import BUILT_IN, Level
from tests.daemon import RunningDaemon
from tests.lab import inside, probe
from tests.lab.internet import Lab

IMAGE = "paddock/python:1"
PIDS, MEMORY_MIB, CPU_MILLICORES = 40, 128, 500
SIBLING_PORT = 8080
SECRET = "canary-51d0c7e29b"
LEVELS = ("full-isolation", "development", "build", "production", "local")


@dataclass(frozen=True)
class LabSandbox:
    """A sandbox of that level; `local` is `production` with the local network."""

    place: Lab
    daemon: RunningDaemon
    name: str

    @property
    def level(self) -> Level:
        return BUILT_IN["production" if self.name == "local" else self.name]

    @property
    def uid(self) -> str:
        return str(self.daemon.get(self.name)["metadata"]["uid"])

    @property
    def container(self) -> str:
        return container_name(self.name, self.uid)

    def inspect(self) -> dict[str, Any]:
        observed: dict[str, Any] = json.loads(self.place.docker("inspect", self.container))[0]
        return observed

    def address(self) -> str:
        networks = self.inspect()["NetworkSettings"]["Networks"].values()
        return next((network["IPAddress"] for network in networks if network["IPAddress"]), "")

    def run(self, source: Path, *arguments: str, stdin: str = "") -> Any:
        """Run a Python program in the sandbox; return the JSON that it prints."""
        command = ["docker", "-H", self.place.engine.base_url, "exec", "-i", self.container]
        command += ["python3", "-c", source.read_text(), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=90, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout.splitlines()[-1])

    def tries(self, *attempts: list[Any]) -> list[str]:
        output: list[str] = self.run(Path(probe.__file__), stdin=json.dumps(attempts))
        return output

    def probes(self, *names: str) -> Mapping[str, str]:
        output: Mapping[str, str] = self.run(Path(inside.__file__), *names)
        return output


def document(name: str, level: str, template: Mapping[str, Any], **spec: Any) -> str:
    small = {"limits": {"memory": f"{MEMORY_MIB}Mi", "cpu": "100m", "pids": 16}}
    body = {"template": {"securityLevel": level, **template}, "resources": small, **spec}
    return json.dumps({"apiVersion": "paddock/v1alpha1", "kind": "Sandbox", "metadata": {"name": name}, "spec": body})


def spec(name: str) -> str:
    """Return the spec of a sandbox in LEVELS."""
    template: dict[str, Any] = {
        "image": IMAGE,
        "command": ["python3", "-m", "http.server", str(SIBLING_PORT)],
        "secrets": [{"name": "token", "mountPath": "/run/secrets/token"}],
    }
    if name != "local":  # all four levels hold with an agent; `local` is production without one
        template["agent"] = {}
    if name != "full-isolation":
        template["user"] = "0:0"  # whoever is root in there tries harder
    limits = {"memory": f"{MEMORY_MIB}Mi", "cpu": f"{CPU_MILLICORES}m", "pids": PIDS, "disk": "1Gi"}
    network = {"local": {"localNetwork": "Allowed"}, "development": {"allowedHosts": ["git.example.org"]}}
    return document(
        name,
        "production" if name == "local" else name,
        template,
        resources={"limits": limits},
        lifecycle={"keepRunning": True, "shutdownGracePeriodSeconds": 0},
        **({"network": network[name]} if name in network else {}),
    )
