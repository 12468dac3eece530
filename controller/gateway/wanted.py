"""Work of the gateway, from a snapshot: its sources of models, and the sandboxes that it listens in."""

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
class Wanted:
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


def wanted(snapshot: Snapshot, policy: Policy, key_of: KeyOf) -> Wanted:
    """Return what is to be served. `key_of` reads a key by namespace and name, and raises NoSecret."""
    targets: dict[str, Target] = {}
    problems: dict[str, ModelsState] = {}
    for each in snapshot.providers.values():
        if each.spec is None or each.obj.deleted_at is not None:
            continue
        made, problem = _provider(each, each.spec, policy, key_of)
        targets[made.id] = made
        if problem is not None:
            problems[made.id] = problem
    for server in snapshot.model_servers.values():
        if server.spec is not None and server.obj.deleted_at is None:
            targets[server.obj.uid] = _server(server.obj, server.spec)
    listeners: dict[str, Access] = {}
    containers: dict[str, Container] = {}
    missing: dict[str, str] = {}
    deaf: dict[str, str] = {}
    by_name = {(each.namespace, each.is_server, each.name): each.id for each in targets.values()}
    for uid, box in snapshot.sandboxes.items():
        if box.spec is None or not box.spec.models or box.obj.deleted_at is not None:
            continue
        found, absent = _sources(box, box.spec.models, by_name)
        if absent:
            missing[uid] = f"there is no {' and no '.join(absent)} in namespace `{box.obj.namespace}`; apply it"
        container = _running(snapshot, uid)
        if container is not None:
            listeners[uid] = Access(User(box.obj.namespace, box.obj.name), found)
            containers[uid] = container
            if why := _deaf(box, policy):
                deaf[uid] = why
    listeners[HOST] = Access(User("", "", "Token"), ())  # each request says whose token it has
    return Wanted(Config(targets, listeners), containers, problems, missing, deaf)


def _provider(
    provider: StoredProvider, spec: ProviderSpec, policy: Policy, key_of: KeyOf
) -> tuple[Target, ModelsState | None]:
    obj, key, problem = provider.obj, "", None
    endpoint = endpoint_of(spec.url)
    if refused := url_refused(spec.url, policy):
        problem = ModelsState("NotAllowed", f"spec.url: {refused}")
    elif spec.secret_ref is not None:
        try:
            secret = key_of(obj.namespace, spec.secret_ref.name)
            if endpoint is None or (words := key_refused(spec.secret_ref.name, endpoint, secret.hosts)):
                problem = ModelsState("SecretNotForHost", words)
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
    box: Sandbox, models: tuple[ModelSource, ...], by_name: Mapping[tuple[str, bool, str], str]
) -> tuple[tuple[str, ...], list[str]]:
    """Return the ids of a sandbox's sources, and the words of those that do not exist."""
    found: list[str] = []
    absent: list[str] = []
    for each in models:
        is_server = each.model_server_ref is not None
        ref = each.model_server_ref or each.provider_ref
        assert ref is not None  # the model checks it
        uid = by_name.get((box.obj.namespace, is_server, ref.name))
        if uid is None:
            absent.append(f"{'modelserver' if is_server else 'provider'} `{ref.name}`")
        elif uid not in found:
            found.append(uid)
    return tuple(found), absent


def _running(snapshot: Snapshot, uid: str) -> Container | None:
    """Return the container of a sandbox that runs, if it has one."""
    obj, held = snapshot.sandboxes[uid].obj, snapshot.instances.get(uid)
    own = (held.memory.container, held.memory.run[0]) if held is not None else ()
    alive = [
        each
        for each in snapshot.observed.containers.get(uid, ())
        if each.state in (State.RUNNING, State.PAUSED)
        # Others may have its labels: `docker commit` copies them.
        and (each.id in own or each.name == container_name(obj.name, uid))
    ]
    return max(alive, key=lambda each: each.started_at, default=None)


def _deaf(box: Sandbox, policy: Policy) -> str:
    runtime = (box.template.runtime if box.template else None) or (policy.host.default_runtime if policy.host else "")
    if not hides_processes(runtime):
        return ""
    return f"the runtime `{runtime}` keeps the sandbox's network to itself; use another runtime"


def states_of(wanted: Wanted, told: Mapping[str, ModelsState]) -> dict[str, ModelsState]:
    """Return the state of every provider: its own problem, else what the gateway told last."""
    untried = ModelsState(NOT_TRIED, "the gateway did not try it yet")
    return {
        each.id: wanted.problems.get(each.id) or told.get(each.id, untried)
        for each in wanted.config.targets.values()
        if not each.is_server
    }
