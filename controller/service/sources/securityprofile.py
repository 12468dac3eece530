"""The built-in security profiles: each offered level, as the spec of a profile."""

from collections.abc import Sequence

from controller.kinds.meta import StoredObject
from controller.plan.securityprofile import effective, settings_of
from controller.policy.levels.levels import Level, Policy
from controller.service.errors import NotFound
from controller.service.listing.field_selector import FieldSelector
from controller.service.sources import derived_uid


class ProfileSource:
    """The levels of a policy that this host can enforce; the others are not offered."""

    def __init__(self, policy: Policy | None = None) -> None:
        self._policy = policy or Policy()
        self._levels = self._policy.levels

    def get(self, namespace: str, name: str) -> StoredObject | None:  # noqa: ARG002 - they belong to the host
        """Return the profile. NotFound gives the missing requirement of a level that is not offered."""
        level = self._levels.get(name)
        if level is not None and not level.offered:
            raise NotFound(f"securityprofiles `{name}` is not offered: {level.missing}")
        return None if level is None else profile(level, self._policy)

    def list(self, namespace: str | None, by_fields: FieldSelector, limit: int) -> Sequence[StoredObject]:  # noqa: ARG002 - few enough
        return [
            profile(level, self._policy)
            for level in sorted(self._levels.values(), key=lambda level: level.name)
            if level.offered
        ]


def profile(level: Level, policy: Policy) -> StoredObject:
    """Return a built-in profile. Its spec can be applied under another name."""
    accepted = {"type": "Accepted", "status": "True", "reason": "BuiltIn", "message": ""}
    return StoredObject(
        kind="SecurityProfile",
        namespace="",
        name=level.name,
        uid=derived_uid("SecurityProfile", level.name),
        generation=0,
        spec={"base": level.name, **settings_of(level)},
        status={"conditions": [accepted], "effective": effective(level, policy)},
    )
