"""What of a stored status is another version's: fields and conditions that this one does not compute are carried along.

What this version computes it also takes away: a field of its own that is not computed now is gone.
"""

from collections.abc import Mapping
from typing import Any

# All that plan/sandbox/status.py may write; a test holds the two together.
FIELDS = frozenset(
    {
        "observedGeneration",
        "conditions",
        "restartCount",
        "instanceRef",
        "image",
        "resources",
        "launchReason",
        "launchType",
        "startTime",
        "lastTermination",
    }
)
CONDITIONS = frozenset(
    {
        "Ready",
        "Accepted",
        "Scheduled",
        "Provisioned",
        "Resized",
        "DiskQuotaEnforced",
        "NetworkReady",
        "Secured",
        "Outdated",
        "Suspended",
        "Finished",
        "Degraded",
    }
)


def carried(before: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, Any]:
    """The status that was made, with what the stored one has beside that."""
    kept = {name: value for name, value in before.items() if name not in FIELDS and name not in made}
    mine = {each["type"] for each in made["conditions"]} | CONDITIONS
    foreign = [each for each in before.get("conditions", ()) if each["type"] not in mine]
    return {**kept, **made, "conditions": [*made["conditions"], *foreign]}
