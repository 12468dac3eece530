"""Findings of an audit as SARIF 2.1.0, which code hosts show beside the code. Pure."""

import json
from collections.abc import Iterable
from typing import Any

from deploy.supply.advisories import Vulnerability

_LEVELS = {"critical": "error", "high": "error", "medium": "warning", "low": "note", "unknown": "warning"}
_SCORES = {"critical": "9.5", "high": "8.0", "medium": "5.5", "low": "2.5"}


def document(findings: Iterable[tuple[str, Vulnerability]], blind: Iterable[str], version: str) -> str:
    """Return the SARIF log of findings, each with the file that is to change; `blind`: what was not looked up."""
    rules: dict[str, dict[str, Any]] = {}
    results = []
    for file, each in findings:
        rules.setdefault(each.id, _rule(each))
        results.append(_result(file, each))
    notes = [{"level": "error", "message": {"text": text}} for text in blind]
    run: dict[str, Any] = {
        "tool": {"driver": {"name": "paddock-audit", "version": version, "rules": list(rules.values())}},
        "invocations": [{"executionSuccessful": not notes, "toolExecutionNotifications": notes}],
        "results": results,
    }
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _rule(each: Vulnerability) -> dict[str, Any]:
    found: dict[str, Any] = {"id": each.id, "shortDescription": {"text": each.summary or each.id}}
    if each.url:
        found["helpUri"] = each.url
    if score := _SCORES.get(each.severity):
        found["properties"] = {"security-severity": score, "tags": ["security"]}
    return found


def _result(file: str, each: Vulnerability) -> dict[str, Any]:
    path, _, line = file.partition(":")
    return {
        "ruleId": each.id,
        "level": _LEVELS[each.severity] if each.actionable else "note",
        "message": {"text": str(each)},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": path},
                    "region": {"startLine": int(line or 1)},
                }
            }
        ],
        "partialFingerprints": {"paddock/v1": f"{path}/{each.component.purl}/{each.id}"},
    }
