"""Desired state of the gateway, from a snapshot: its sources of models, and the sandboxes that it listens in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from controller.gateway.config import HOST, Access, Config, Limits, Target, Timeouts, User
from controller.kinds.common.labels import container_name
from controller.kinds.meta import StoredObject
from controller.kinds.modelserver import ModelServerSpec
from controller.kinds.observed.models import NOT_TRIED, ModelsState
from controller.kinds.observed.observed import Container, State
from controller.kinds.planning.snapshot import Sandbox, Snapshot
from controller.kinds.provider import ProviderSpec, StoredProvider
from controller.kinds.runtime.secret import NoSecret, ProviderKey
from controller.kinds.sandbox import ModelSource
from controller.policy.attest.attest import hides_processes
from controller.policy.levels.levels import Policy
from controller.policy.provider import base_url, endpoint_of, is_listed, key_refused, url_refused

KeyOf = Callable[[str, str], ProviderKey]


@dataclass(frozen=True, slots=True)
class DesiredState:
    """The configuration, and by sandbox the container to listen in. `problems` are those of providers, by uid.

    `missing` says by sandbox which of its sources do not exist; `deaf` why no listener can be reached in it.
    """

    config: Config
    containers: Mapping[str, Container]
    problems: Mapping[str, ModelsState]
    missing: Mapping[str, str]
    deaf: Mapping[str, str]

    @property
    def active(self) -> bool:
        """True if there is anything to serve."""
        return bool(self.config.targets)


def desired_state(snapshot: Snapshot, policy: Policy, key_of: KeyOf) -> DesiredState:
    """Return what is to be served. `key_of` reads a key by namespace and name, and raises NoSecret."""
    targets: dict[str, Target] = {}
    problems: dict[str, ModelsState] = {}
    for provider in snapshot.models.providers.values():
        if provider.spec is None or provider.obj.deleted_at is not None:
            continue
        target, problem = _provider(provider, provider.spec, policy, key_of)
        targets[target.id] = target
        if problem is not None:
            problems[target.id] = problem
    for server in snapshot.models.servers.values():
        if server.spec is not None and server.obj.deleted_at is None:
            targets[server.obj.uid] = _server(server.obj, server.spec)
    listeners: dict[str, Access] = {}
    containers: dict[str, Container] = {}
    missing: dict[str, str] = {}
    deaf: dict[str, str] = {}
    by_name = {(source.namespace, source.is_server, source.name): source.id for source in targets.values()}
    for uid, sandbox in snapshot.desired.sandboxes.items():
        if sandbox.spec is None or not sandbox.spec.models or sandbox.obj.deleted_at is not None:
            continue
        source_ids, absent = _sources(sandbox, sandbox.spec.models, by_name)
        if absent:
            missing[uid] = f"there is no {' and no '.join(absent)} in namespace `{sandbox.obj.namespace}`; apply it"
        container = _running_container(snapshot, uid)
        if container is not None:
            listeners[uid] = Access(User(sandbox.obj.namespace, sandbox.obj.name), source_ids)
            containers[uid] = container
            if why := _deaf(sandbox, policy):
                deaf[uid] = why
    listeners[HOST] = Access(User("", "", "Token"), ())  # each request says whose token it has
    return DesiredState(Config(targets, listeners), containers, problems, missing, deaf)


def _provider(
    provider: StoredProvider, spec: ProviderSpec, policy: Policy, key_of: KeyOf
) -> tuple[Target, ModelsState | None]:
    """Return the target of a Provider, and the state that says why it can't be used; None: it can."""
    obj = provider.obj
    key = ""
    problem = None
    endpoint = endpoint_of(spec.url)
    if url_refusal := url_refused(spec.url, policy):
        problem = ModelsState("NotAllowed", f"spec.url: {url_refusal}")
    elif spec.secret_ref is not None:
        try:
            secret = key_of(obj.namespace, spec.secret_ref.name)
            if endpoint is None or (key_refusal := key_refused(spec.secret_ref.name, endpoint, secret.hosts)):
                problem = ModelsState("SecretNotForHost", key_refusal)
            else:
                key = secret.value
        except NoSecret as error:
            problem = ModelsState("SecretMissing", str(error))
    target = Target(
        id=obj.uid,
        namespace=obj.namespace,
        name=obj.name,
        form=spec.type,
        models=spec.models,
        base=base_url(spec),
        key=key,
        private=endpoint is not None and is_listed(endpoint, policy.provider_hosts),
        broken=f"{problem.reason}; ask the operator" if problem else "",
        authority=spec.certificate_authority or "",
        limits=Limits(spec.limits.requests_per_minute, spec.limits.concurrent, spec.limits.tokens_per_day),
        timeouts=Timeouts(spec.timeouts.first_byte_seconds, spec.timeouts.idle_seconds, spec.timeouts.total_seconds),
    )
    return target, problem


def _server(obj: StoredObject, spec: ModelServerSpec) -> Target:
    return Target(
        id=obj.uid,
        namespace=obj.namespace,
        name=obj.name,
        form="Any",
        models=(obj.name,),
        renamed=spec.model,
    )


def _sources(
    sandbox: Sandbox, models: tuple[ModelSource, ...], by_name: Mapping[tuple[str, bool, str], str]
) -> tuple[tuple[str, ...], list[str]]:
    """Return the ids of a sandbox's sources, and the words of those that do not exist."""
    source_ids: list[str] = []
    absent: list[str] = []
    for source in models:
        is_server = source.model_server_ref is not None
        ref = source.model_server_ref or source.provider_ref
        assert ref is not None  # the model checks it
        uid = by_name.get((sandbox.obj.namespace, is_server, ref.name))
        if uid is None:
            absent.append(f"{'modelserver' if is_server else 'provider'} `{ref.name}`")
        elif uid not in source_ids:
            source_ids.append(uid)
    return tuple(source_ids), absent


def _running_container(snapshot: Snapshot, uid: str) -> Container | None:
    """Return the container of a sandbox that runs, if it has one."""
    obj, instance = snapshot.desired.sandboxes[uid].obj, snapshot.instances.get(uid)
    own_ids = (instance.state.container.id, instance.state.runs.last.container_id) if instance is not None else ()
    alive = [
        container
        for container in snapshot.observed.containers.get(uid, ())
        if container.state in (State.RUNNING, State.PAUSED)
        # Others may have its labels: `docker commit` copies them.
        and (container.id in own_ids or container.name == container_name(obj.name, uid))
    ]
    return max(alive, key=lambda container: container.started_at, default=None)


def _deaf(sandbox: Sandbox, policy: Policy) -> str:
    runtime = (sandbox.template.runtime if sandbox.template else None) or (
        policy.host.default_runtime if policy.host else ""
    )
    if not hides_processes(runtime):
        return ""
    return f"the runtime `{runtime}` keeps the sandbox's network to itself; use another runtime"


def states_of(desired: DesiredState, reported_states: Mapping[str, ModelsState]) -> dict[str, ModelsState]:
    """Return the state of every provider: its own problem, else what the gateway told last."""
    untried = ModelsState(NOT_TRIED, "the gateway did not try it yet")
    return {
        target.id: desired.problems.get(target.id) or reported_states.get(target.id, untried)
        for target in desired.config.targets.values()
        if not target.is_server
    }
