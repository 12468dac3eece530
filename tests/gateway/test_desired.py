"""Work of the gateway: own containers that run, sources of the namespace, and problems in words."""

from dataclasses import replace
from typing import Any

from controller.gateway.config import HOST
from controller.gateway.desired import desired_state, states_of
from controller.kinds.common.labels import container_name
from controller.kinds.meta import StoredObject
from controller.kinds.modelserver import stored_model_server
from controller.kinds.observed.models import ModelsState
from controller.kinds.observed.observed import Container, Observation, State
from controller.kinds.planning.snapshot import Sandbox, Snapshot
from controller.kinds.provider import stored_provider
from controller.kinds.runtime.secret import ProviderKey, SecretNotFound
from controller.kinds.sandbox import SandboxSpec
from controller.policy.levels.levels import Policy
from tests.snapshots import snapshot_with

POLICY = Policy(provider_hosts=("127.0.0.1:11434",))


def obj(kind: str, name: str, spec: dict[str, Any], namespace: str = "default") -> StoredObject:
    return StoredObject(kind, namespace, name, f"uid-{namespace}-{name}", spec)


def new_sandbox(name: str, *models: dict[str, Any], namespace: str = "default") -> Sandbox:
    spec = {"template": {"image": "paddock/python:1"}, "models": list(models)}
    parsed = SandboxSpec.model_validate(spec)
    return Sandbox(obj("Sandbox", name, spec, namespace), parsed, parsed.template)


def container(of: Sandbox, **given: Any) -> Container:
    uid = of.obj.uid
    created = Container(id=f"c-{of.obj.name}", name=container_name(of.obj.name, uid), uid=uid, state=State.RUNNING)
    return replace(created, **given)


def snapshot(*sandboxes: Sandbox, containers: tuple[Container, ...] = (), **more: Any) -> Snapshot:
    document = {
        sandbox.obj.uid: tuple(first for first in containers if first.uid == sandbox.obj.uid) for sandbox in sandboxes
    }
    observed = Observation(revision=1, containers=document)
    return snapshot_with(0.0, "i", {sandbox.obj.uid: sandbox for sandbox in sandboxes}, observed, **more)


def provider(name: str, url: str = "http://127.0.0.1:11434", namespace: str = "default", **spec: Any) -> Any:
    return stored_provider(obj("Provider", name, {"type": "OpenAI", "url": url, **spec}, namespace))


def of(name: str) -> dict[str, Any]:
    return {"providerRef": {"name": name}}


def no_key(_namespace: str, name: str) -> ProviderKey:
    raise SecretNotFound(f"there is no secret `{name}`")


def by_uid(*found: Any) -> dict[str, Any]:
    return {entry.obj.uid: entry for entry in found}


def test_only_own_running_containers_get_a_listener() -> None:
    up, down, foreign, without = (
        new_sandbox("up", of("p")),
        new_sandbox("down", of("p")),
        new_sandbox("foreign", of("p")),
        new_sandbox("without"),
    )
    alive = (
        container(up),
        container(down, state=State.EXITED),
        container(foreign, name="copied-by-docker-commit"),
        container(without),
    )
    observed = desired_state(
        snapshot(up, down, foreign, without, containers=alive, providers=by_uid(provider("p"))), POLICY, no_key
    )
    assert [*observed.containers] == [up.obj.uid]
    assert observed.config.listeners.keys() == {up.obj.uid, HOST}
    assert observed.config.listeners[up.obj.uid].targets == ("uid-default-p",)


def test_sources_are_those_of_the_namespace() -> None:
    server = stored_model_server(obj("ModelServer", "smol", {"template": {"image": "x"}, "model": "tiny"}))
    sandbox = new_sandbox("one", of("p"), {"modelServerRef": {"name": "smol"}}, of("smol"), of("elsewhere"))
    created = snapshot(
        sandbox,
        containers=(container(sandbox),),
        providers=by_uid(provider("p"), provider("elsewhere", namespace="other")),
        servers=by_uid(server),
    )
    observed = desired_state(created, POLICY, no_key)
    assert observed.config.listeners[sandbox.obj.uid].targets == ("uid-default-p", "uid-default-smol")
    assert observed.missing[sandbox.obj.uid].startswith(
        "there is no provider `smol` and no provider `elsewhere` in namespace"
    )
    assert observed.config.of_namespace("default") == ("uid-default-p", "uid-default-smol")
    target = observed.config.targets["uid-default-smol"]
    assert (target.models, target.renamed, target.is_server) == (("smol",), "tiny", True)


def test_unusable_providers_are_not_used() -> None:
    plain = provider("plain", "http://api.example.com")
    keyless = provider("keyless", secretRef={"name": "nothing"})
    observed = desired_state(snapshot(providers=by_uid(plain, keyless, provider("well"))), POLICY, no_key)
    document = {"uid-default-well": ModelsState("Answering"), "uid-default-plain": ModelsState("Answering")}
    states = states_of(observed, document)
    assert {uid: state.reason for uid, state in states.items()} == {
        "uid-default-plain": "NotAllowed",
        "uid-default-keyless": "SecretMissing",
        "uid-default-well": "Answering",
    }
    assert [bool(target.broken) for target in observed.config.targets.values()] == [True, True, False]


def canary(*_: str) -> ProviderKey:
    return ProviderKey("sk-canary", ("127.0.0.1:11434", "api.example.com:443"))


def test_a_key_is_sent_to_its_hosts_alone() -> None:
    urls = {
        "listed": "http://127.0.0.1:11434",
        "own": "https://api.example.com/v1",
        "elsewhere": "https://api.example.com.evil.example.org",
        "port": "https://api.example.com:8443",
    }
    providers = by_uid(*(provider(name, url, secretRef={"name": "k"}) for name, url in urls.items()))
    observed = desired_state(snapshot(providers=providers), POLICY, canary)
    keys = {target.name: target.key for target in observed.config.targets.values()}
    assert keys == {"listed": "sk-canary", "own": "sk-canary", "elsewhere": "", "port": ""}
    states = states_of(observed, {})
    assert {states[f"uid-default-{name}"].reason for name in ("elsewhere", "port")} == {"SecretNotForHost"}
    assert all(observed.config.targets[f"uid-default-{name}"].broken for name in ("elsewhere", "port"))


def test_a_key_shows_in_no_text() -> None:
    observed = desired_state(snapshot(providers=by_uid(provider("p", secretRef={"name": "k"}))), POLICY, canary)
    assert observed.config.targets["uid-default-p"].key == "sk-canary"
    assert "sk-canary" not in repr(observed)


def test_a_container_is_the_same_without_models() -> None:
    from controller.policy.sandbox import render

    def rendered(*models: dict[str, Any]) -> Any:
        sandbox = new_sandbox("same", *models)
        assert sandbox.spec is not None
        assert sandbox.template is not None
        return render(sandbox.spec, sandbox.template, name="same", uid="u", policy=POLICY)

    first, second = rendered(), rendered(of("p"))
    assert (first.config_hash, first.template_hash) == (second.config_hash, second.template_hash)
    assert (first.config.models, second.config.models) == (False, True)
