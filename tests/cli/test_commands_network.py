"""`paddock network check`: the outcome of a request, from the sandbox, its template and its security level."""

import json

from tests.cli.conftest import Run

SANDBOXES = """\
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: crawler}
spec:
  template: {image: "tiny:1"}
  securityLevel: development
  network: {allowedHosts: [git.example.org]}
---
apiVersion: paddock/v1alpha1
kind: Sandbox
metadata: {name: closed}
spec: {template: {image: "tiny:1"}}
"""


def test_a_request_is_judged_by_its_rule(paddock: Run) -> None:
    assert paddock("apply", "-f", "-", stdin=SANDBOXES).exit_code == 0
    output = paddock("network", "check", "crawler", "https://git.example.org/x")
    assert (output.exit_code, output.stdout.splitlines()[:2]) == (
        0,
        [
            "sandbox/crawler: git.example.org:443 would be allowed",
            "  rule: spec.network.allowedHosts: `git.example.org`",
        ],
    )
    outcome = paddock("network", "check", "crawler", "other.example.org", "-o", "json")
    assert (outcome.exit_code, json.loads(outcome.stdout)["rule"]) == (1, "spec.network.allowedHosts")
    closed = paddock("network", "check", "closed", "git.example.org")
    assert (closed.exit_code, "level full-isolation: no network" in closed.stdout) == (1, True)
    assert "git.example.org:80 would" in paddock("network", "check", "crawler", "http://Git.example.org./").stdout
    assert "rule: ports of the proxy" in paddock("network", "check", "crawler", "git.example.org:22").stdout
    for text in ("ftp://git.example.org", "git.example.org:port", ""):
        assert paddock("network", "check", "crawler", text).exit_code == 2
