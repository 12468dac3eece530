"""Users of volumes, and refused volumeClaimTemplates: property tests over generated specs."""

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import assume, given

from controller.kinds.meta import StoredObject
from controller.kinds.sandbox import SandboxSpec, Template
from controller.kinds.volume import HostVolume
from controller.policy.container.mounts import clashes, shared_volumes, volumes
from controller.policy.container.volumes import Users, deleted_with_last_user
from controller.policy.levels.levels import Policy
from controller.policy.sandbox import NO_LIMITS, admit, render, reserved

MIB = 1 << 20
NAMES = st.sampled_from(["a", "b", "a-b", "b-a"])
VOLUMES = st.lists(
    st.builds(
        lambda name, at, policy, read_only: {
            "name": name,
            "mountPath": f"/v{at}",
            "size": "8Mi",
            "reclaimPolicy": policy,
            "readOnly": read_only,
        },
        NAMES,
        st.integers(0, 9),
        st.sampled_from(["Retain", "Delete"]),
        st.booleans(),
    ),
    max_size=3,
)


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    claims = [{key: document[key] for key in document if key != "readOnly"} for document in draw(VOLUMES)]
    spec: dict[str, Any] = {"template": {"image": "a:1", "volumes": draw(VOLUMES), "volumeClaimTemplates": claims}}
    if draw(st.booleans()):
        spec["workspace"] = {"volume": {"name": draw(NAMES), "size": "8Mi"}}
    return spec


def parsed(spec: dict[str, Any]) -> tuple[SandboxSpec, Template]:
    read = SandboxSpec.model_validate(spec)
    assert read.template is not None
    return read, read.template


@given(specs(), NAMES)
def test_users_are_objects_that_name_the_volume(spec: dict[str, Any], name: str) -> None:
    """Compare the users from a stored spec with the mounts that the planner makes of it."""
    obj = StoredObject("Sandbox", "default", name, "uid", spec=spec)
    users = Users([obj], [], [])
    bound = {mount.source for mount in volumes(*parsed(spec), name)}
    texts = {f"{first}-{two}" for first in ("a", "b", "a-b", "b-a") for two in ("a", "b", "a-b", "b-a")}
    for volume in texts | {"a", "b", "a-b", "b-a"}:
        assert bool(users.of(HostVolume("default", volume, "uid", 1))) == (volume in bound)


@given(specs(), NAMES)
def test_all_of_its_volumes_count_as_its_disk(spec: dict[str, Any], name: str) -> None:
    read, template = parsed(spec)
    assume(not list(clashes(read, template, name)))  # refused where it is planned
    assert reserved(read, template, NO_LIMITS).disk_bytes == len(volumes(read, template, name)) * 8 * MIB


def test_a_stored_spec_without_any_is_rendered_as_ever() -> None:
    """No container is made anew by this version: the field leaves no trace where it is not used."""
    before = {"image": "a:1", "volumes": [{"name": "v", "mountPath": "/v", "size": "8Mi"}]}
    rendereds = [
        render(*parsed({"template": document}), name="a", uid="u", policy=Policy())
        for document in (before, {**before, "volumeClaimTemplates": []})
    ]
    assert (rendereds[0].config_hash, rendereds[0].template_hash) == (
        rendereds[1].config_hash,
        rendereds[1].template_hash,
    )
    assert rendereds[0].template_fields == rendereds[1].template_fields
    assert "volume_claim_templates" not in rendereds[0].template_fields


@pytest.mark.parametrize(
    ("claims", "refused_field"),
    [
        ([("data", "/data"), ("data", "/more")], "spec.template.volumeClaimTemplates[1].name"),
        ([("shared", "/data")], "spec.template.volumeClaimTemplates[0].name"),
        ([("data", "/shared/below")], "spec.template.volumeClaimTemplates[0].mountPath"),
        ([("data", "/proc/x")], "spec.template.volumeClaimTemplates[0].mountPath"),
    ],
)
def test_conflicting_names_and_paths_are_refused(claims: list[tuple[str, str]], refused_field: str) -> None:
    documents = [{"name": name, "mountPath": path, "size": "8Mi"} for name, path in claims]
    own_documents = [{"name": "shared", "mountPath": "/shared", "size": "8Mi"}]
    spec, _ = parsed({"template": {"image": "a:1", "volumes": own_documents, "volumeClaimTemplates": documents}})
    assert [refusal.field for refusal in admit(spec, Policy())] == [refused_field]


@given(specs())
def test_shared_volumes_are_the_writable_named_ones(spec: dict[str, Any]) -> None:
    _, template = parsed(spec)
    assert set(shared_volumes(template)) == {volume.name for volume in template.volumes if not volume.read_only}


def test_a_volume_is_deleted_with_its_last_sandbox() -> None:
    def user(name: str, policy: str) -> StoredObject:
        documents = [{"name": "v", "mountPath": "/v", "size": "8Mi", "reclaimPolicy": policy}]
        return StoredObject("Sandbox", "default", name, name, spec={"template": {"image": "a:1", "volumes": documents}})

    volume = HostVolume("default", "v", "uid", 1)
    assert deleted_with_last_user(Users([user("a", "Delete"), user("b", "Delete")], [], []).of(volume))
    assert not deleted_with_last_user(Users([user("a", "Delete"), user("b", "Retain")], [], []).of(volume))
    assert not deleted_with_last_user(Users([], [user("t", "Delete")], []).of(volume))


def test_a_missing_template_keeps_own_volumes() -> None:
    sandbox = StoredObject("Sandbox", "default", "a", "uid", spec={"templateRef": {"name": "t"}})
    template = StoredObject("SandboxTemplate", "default", "t", "uid", spec={"image": "a:1"})
    volume = HostVolume("default", "data-a", "uid", 1, claimed_by="a")
    assert [user.name for user in Users([sandbox], [], []).of(volume)] == ["a"]
    assert Users([sandbox], [template], []).of(volume) == ()


@pytest.mark.parametrize("spec", [{}, {"template": "x"}, {"template": {"volumes": ["x", {"name": 1}]}, "workspace": 3}])
def test_unreadable_specs_are_ignored(spec: dict[str, Any]) -> None:
    users = Users([StoredObject("Sandbox", "default", "a", "uid", spec=spec)], [], [])
    assert all(user.name == "a" for user in users.of(HostVolume("default", "data-a", "uid", 1, claimed_by="a")))
