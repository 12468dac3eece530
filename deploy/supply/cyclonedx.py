"""Bills of materials in CycloneDX 1.6 (JSON). The same components give the same bytes. Standard library only."""

import json
import re
import uuid
from collections.abc import Sequence
from typing import Any

from deploy.supply.components import Component

_SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"
_SPACE = uuid.UUID("6d2f7a0e-6b5c-5d0e-9c3a-0d5c1f3b8a11")  # of serial numbers made from contents
_EXPRESSION = re.compile(r"[A-Za-z0-9.+() -]+")
OWNER = "paddock:debianPackage"


def document(subject: str, components: Sequence[Component], *, version: str = "", created: str = "") -> str:
    """Return the bill of materials of an image (`version`: its id) or of a file."""
    parts = [_component(each) for each in components]
    kind = "container" if version else "application"
    about: dict[str, Any] = {"type": kind, "bom-ref": "subject", "name": subject}
    about |= {"version": version} if version else {}
    metadata: dict[str, Any] = {"timestamp": created} if created else {}
    tools = {"components": [{"type": "application", "name": "paddock-sbom"}]}
    body = {
        "metadata": {**metadata, "tools": tools, "component": about},
        "components": parts,
        "dependencies": [{"ref": "subject", "dependsOn": [each["bom-ref"] for each in parts]}],
    }
    serial = uuid.uuid5(_SPACE, json.dumps(body, sort_keys=True))
    head = {
        "$schema": _SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
    }
    return json.dumps({**head, **body}, indent=1) + "\n"


def _component(each: Component) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "file" if each.ecosystem == "file" else "library",
        "bom-ref": each.purl,
        "name": each.name,
        "version": each.version,
        "purl": each.purl,
    }
    if each.ecosystem == "npm" and each.name.startswith("@") and "/" in each.name:
        found["group"], found["name"] = each.name.split("/", 1)
    if each.hashes:
        found["hashes"] = [{"alg": algorithm, "content": content} for algorithm, content in each.hashes]
    if each.licence and _EXPRESSION.fullmatch(each.licence):
        found["licenses"] = [{"license": {"name": each.licence}}]
    if each.places:
        found["evidence"] = {"occurrences": [{"location": place} for place in each.places]}
    if each.owner:
        found["properties"] = [{"name": OWNER, "value": each.owner}]
    return found
