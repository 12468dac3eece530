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

POLICY = Policy(provider_hosts=("127.0.0.1:11434",))


def obj(kind: str, name: str, spec: dict[str, Any], namespace: str = "default") -> StoredObject:
    return StoredObject(kind, namespace, name, f"uid-{namespace}-{name}", spec)


def box(name: str, *models: dict[str, Any], namespace: str = "default") -> Sandbox:
    spec = {"template": {"image": "paddock/python:1"}, "models": list(models)}
    parsed = SandboxSpec.model_validate(spec)
    return Sandbox(obj("Sandbox", name, spec, namespace), parsed, parsed.template)


def container(of: Sandbox, **given: Any) -> Container:
    uid = of.obj.uid
    made = Container(id=f"c-{of.obj.name}", name=container_name(of.obj.name, uid), uid=uid, state=State.RUNNING)
    return replace(made, **given)


def snapshot(*boxes: Sandbox, containers: tuple[Container, ...] = (), **more: Any) -> Snapshot:
    found = {each.obj.uid: tuple(one for one in containers if one.uid == each.obj.uid) for each in boxes}
    observed = Observation(revision=1, containers=found)
    return Snapshot(0.0, "i", {each.obj.uid: each for each in boxes}, observed, **more)


def provider(name: str, url: str = "http://127.0.0.1:11434", namespace: str = "default", **spec: Any) -> Any:
    return stored_provider(obj("Provider", name, {"type": "OpenAI", "url": url, **spec}, namespace))


def of(name: str) -> dict[str, Any]:
    return {"providerRef": {"name": name}}


def no_key(_namespace: str, name: str) -> ProviderKey:
    raise SecretNotFound(f"there is no secret `{name}`")


def by_uid(*found: Any) -> dict[str, Any]:
    return {each.obj.uid: each for each in found}


def test_only_own_running_containers_get_a_listener() -> None:
    up, down, foreign, without = box("up", of("p")), box("down", of("p")), box("foreign", of("p")), box("without")
    alive = (
        container(up),
        container(down, state=State.EXITED),
        container(foreign, name="copied-by-docker-commit"),
        container(without),
    )
    found = desired_state(
        snapshot(up, down, foreign, without, containers=alive, providers=by_uid(provider("p"))), POLICY, no_key
    )
    assert [*found.containers] == [up.obj.uid]
    assert found.config.listeners.keys() == {up.obj.uid, HOST}
    assert found.config.listeners[up.obj.uid].targets == ("uid-default-p",)


def test_sources_are_those_of_the_namespace() -> None:
    server = stored_model_server(obj("ModelServer", "smol", {"template": {"image": "x"}, "model": "tiny"}))
    one = box("one", of("p"), {"modelServerRef": {"name": "smol"}}, of("smol"), of("elsewhere"))
    made = snapshot(
        one,
        containers=(container(one),),
        providers=by_uid(provider("p"), provider("elsewhere", namespace="other")),
        model_servers=by_uid(server),
    )
    found = desired_state(made, POLICY, no_key)
    assert found.config.listeners[one.obj.uid].targets == ("uid-default-p", "uid-default-smol")
    assert found.missing[one.obj.uid].startswith("there is no provider `smol` and no provider `elsewhere` in namespace")
    assert found.config.of_namespace("default") == ("uid-default-p", "uid-default-smol")
    target = found.config.targets["uid-default-smol"]
    assert (target.models, target.renamed, target.is_server) == (("smol",), "tiny", True)


def test_unusable_providers_are_not_used() -> None:
    plain = provider("plain", "http://api.example.com")
    keyless = provider("keyless", secretRef={"name": "nothing"})
    found = desired_state(snapshot(providers=by_uid(plain, keyless, provider("well"))), POLICY, no_key)
    told = {"uid-default-well": ModelsState("Answering"), "uid-default-plain": ModelsState("Answering")}
    states = states_of(found, told)
    assert {uid: each.reason for uid, each in states.items()} == {
        "uid-default-plain": "NotAllowed",
        "uid-default-keyless": "SecretMissing",
        "uid-default-well": "Answering",
    }
    assert [bool(each.broken) for each in found.config.targets.values()] == [True, True, False]


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
    found = desired_state(snapshot(providers=providers), POLICY, canary)
    keys = {each.name: each.key for each in found.config.targets.values()}
    assert keys == {"listed": "sk-canary", "own": "sk-canary", "elsewhere": "", "port": ""}
    states = states_of(found, {})
    assert {states[f"uid-default-{name}"].reason for name in ("elsewhere", "port")} == {"SecretNotForHost"}
    assert all(found.config.targets[f"uid-default-{name}"].broken for name in ("elsewhere", "port"))


def test_a_key_shows_in_no_text() -> None:
    found = desired_state(snapshot(providers=by_uid(provider("p", secretRef={"name": "k"}))), POLICY, canary)
    assert found.config.targets["uid-default-p"].key == "sk-canary"
    assert "sk-canary" not in repr(found)


def test_a_container_is_the_same_without_models() -> None:
    from controller.policy.sandbox import render

    def rendered(*models: dict[str, Any]) -> Any:
        made = box("same", *models)
        assert made.spec is not None
        assert made.template is not None
        return render(made.spec, made.template, name="same", uid="u", policy=POLICY)

    one, other = rendered(), rendered(of("p"))
    assert (one.config_hash, one.template_hash) == (other.config_hash, other.template_hash)
    assert (one.config.models, other.config.models) == (False, True)
