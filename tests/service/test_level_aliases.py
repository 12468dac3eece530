"""Second names of the security levels: accepted, stored under the first, and an operator's profile comes before."""

import pytest

from controller.kinds.sandbox import KIND as SANDBOX
from controller.kinds.securityprofile import ALIASES, BUILT_IN_NAMES
from tests.helpers_api import QUICKSTART, ApiStack
from tests.helpers_fixtures import api, quiet

__all__ = ["api", "quiet"]
HEAD = "apiVersion: paddock/v1alpha1\n"
PROFILE = f"{HEAD}kind: SecurityProfile\nmetadata: {{name: none}}\nspec: {{base: full-isolation}}\n"


def at_level(name: str, kind: str = "Sandbox") -> str:
    if kind == "SandboxTemplate":
        return f"{HEAD}kind: {kind}\nmetadata: {{name: t}}\nspec: {{image: a, securityLevel: {name}}}\n"
    return QUICKSTART.replace("spec:\n", f"spec:\n  securityLevel: {name}\n", 1)


@pytest.mark.parametrize(("alias", "level"), ALIASES.items())
def test_an_alias_is_stored_under_the_first_name(api: ApiStack, alias: str, level: str) -> None:
    assert level in BUILT_IN_NAMES
    for _ in range(2):  # the file says the alias, the store its first name: nothing changes
        api.apply(at_level(alias) + "---\n" + at_level(alias, "SandboxTemplate"))
        assert (api.sandbox().spec["securityLevel"], api.sandbox().generation) == (level, 1)
        template = api.store.get("SandboxTemplate", "default", "t")
        assert template is not None
        assert template.spec["securityLevel"] == level


def test_a_profile_of_that_name_comes_first(api: ApiStack) -> None:
    api.apply(PROFILE)
    api.apply(at_level("none"))
    assert api.sandbox().spec["securityLevel"] == "none"


def test_a_patch_may_say_an_alias(api: ApiStack) -> None:
    api.apply()
    patch = {"spec": {"securityLevel": "internet"}}
    patched = api.services.patch.patch(SANDBOX, "default", "quickstart", patch)
    assert patched.spec["securityLevel"] == "production"
