"""Probes of a container: as in Kubernetes, but for named ports and for what connects to another host. Pure."""

from collections.abc import Mapping
from typing import Any

from controller.documents.agent_sandbox.report import Json, Subject
from controller.documents.aliases import PROBES

_SCHEDULE = (
    *("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"),
    *("exec", "httpGet", "tcpSocket"),
)
_REFUSED = {"grpc": "is not probed here; write a `tcpSocket`, or a command with a client in the image"}
_ITSELF = "a probe connects to the sandbox itself; remove it"


def probes_of(subject: Subject, container: Json, path: str) -> dict[str, Any]:
    """Return the probes of a container by Paddock's names."""
    ports = {str(port.get("name")): port.get("containerPort") for port in subject.tables(container, "ports", path)}
    probes: dict[str, Any] = {}
    for kubernetes_name, ours in PROBES.items():
        probe, at = subject.table(container, kubernetes_name, path), f"{path}.{kubernetes_name}"
        if not probe:
            continue
        subject.check(probe, at, _SCHEDULE, remedies=_REFUSED)
        probes[ours] = {key: value for key, value in probe.items() if key in _SCHEDULE}
        if "httpGet" in probe:
            probes[ours]["httpGet"] = _http(subject, subject.table(probe, "httpGet", at), f"{at}.httpGet", ports)
        if "tcpSocket" in probe:
            action = subject.table(probe, "tcpSocket", at)
            subject.check(action, f"{at}.tcpSocket", ("port",), remedies={"host": _ITSELF})
            probes[ours]["tcpSocket"] = {"port": _port(subject, action, f"{at}.tcpSocket", ports)}
        if ours == "readiness":
            subject.note(at, "ends with its first success here: a later failure makes the sandbox not unready")
    return probes


def _http(subject: Subject, action: Json, path: str, ports: Mapping[str, Any]) -> dict[str, Any]:
    subject.check(action, path, ("path", "port", "scheme", "httpHeaders"), remedies={"host": _ITSELF})
    translated: dict[str, Any] = {key: action[key] for key in ("path", "scheme") if action.get(key)}
    for number, header in enumerate(subject.tables(action, "httpHeaders", path)):
        if str(header.get("name", "")).lower() == "host":
            translated["host"] = header.get("value")
        else:
            subject.fault(f"{path}.httpHeaders[{number}]", "a probe sends the header Host alone; remove it")
    return {**translated, "port": _port(subject, action, path, ports)}


def _port(subject: Subject, action: Json, path: str, ports: Mapping[str, Any]) -> Any:
    """Return the number of a port, which may be given by its name in the container."""
    port = action.get("port")
    if isinstance(port, str) and port.isdigit():
        return int(port)
    if not isinstance(port, str):
        return port
    if port not in ports:
        subject.fault(f"{path}.port", f"the container has no port named `{port}`; write its number")
    return ports.get(port)
