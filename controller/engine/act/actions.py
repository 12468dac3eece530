"""Actor: one engine call for each action, idempotent. All decisions are the planner's.

The engine answers a repeated call differently by verb and version (304, 400, 409, 500). So the container is inspected
after a refusal, and the action is done if the container is as desired.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from controller.engine.act.resize_checks import differences, in_use, remaining_drift, shrinks, too_small
from controller.engine.docker.agent_runtimes import AgentRuntimes, mount_of
from controller.engine.docker.bulkhead import hanging_message
from controller.engine.docker.client import BAD_REQUEST, Client
from controller.engine.docker.create_config import create_body, network_files, update_body
from controller.engine.docker.errors import Fault, outcome_of
from controller.engine.docker.inspect import NO_NETWORK
from controller.engine.docker.seccomp import NoProfile, profile
from controller.engine.docker.start_errors import in_words
from controller.engine.docker.view import View
from controller.engine.exec.log_tail import read_tail
from controller.engine.images.accounts import Accounts
from controller.engine.images.image_checks import check_image
from controller.engine.images.pull import Pulls, not_pulled, pull
from controller.engine.images.registries import Registries, RegistryRefused
from controller.engine.kernel.cgroups import Cgroups, Unreadable
from controller.engine.kernel.page_out import allow_no_swap, page_out, read_in
from controller.engine.mounts.host_authorities import HostAuthorities
from controller.engine.mounts.host_mounts import HostMounts
from controller.engine.observe.observer import BackgroundObserver, Foreign, Observer
from controller.engine.snapshots.restore import SNAPSHOT_MISSING, Restorer, missing_message
from controller.kinds.common import labels as own
from controller.kinds.common.log_tail import GONE
from controller.kinds.observed.observed import Container, State
from controller.kinds.observed.swap import HibernationAbility
from controller.kinds.planning.action import (
    Action,
    BuildImage,
    ConnectNetwork,
    CreateContainer,
    DisconnectNetwork,
    HibernateContainer,
    PauseContainer,
    PullImage,
    ReadTail,
    RemoveContainer,
    RenameContainer,
    SignalContainer,
    StartContainer,
    UnpauseContainer,
    UpdateLimits,
    WakeContainer,
)
from controller.kinds.planning.outcome import NOT_HIBERNATED, START_BLOCKED, Ok, Outcome, Terminal, Transient, Waiting
from controller.kinds.runtime.container import ContainerConfig
from controller.kinds.runtime.mount import BindMounts, CheckFiles, Mount, RemoveFiles, RemoveVolumes, SaveFiles
from controller.kinds.runtime.snapshot import RestoreRoot
from controller.policy.attest.mounted import missing
from controller.policy.container.credentials import trusting_host, trusts_host
from controller.policy.images import remedy

_log = logging.getLogger(__name__)
_LIVE = (State.RUNNING, State.PAUSED)
_GONE_RETRY_SECONDS = 0.1
_REMOVING_RETRY_SECONDS = 0.5
_STALE_STATE_SECONDS = 0.5
_BEING_CAPTURED = Waiting(0.5, "BeingCaptured", "a snapshot of it is being taken")
_NO_DRIVER = "could not select device driver"
_WITHOUT_DRIVER = (
    "this engine has no driver for them; install one (the NVIDIA Container Toolkit), restart the engine, and apply the "
    "sandbox again, or remove gpus from the spec"
)
_Thaw = UnpauseContainer | WakeContainer
OnContainer = (
    PauseContainer
    | UnpauseContainer
    | HibernateContainer
    | WakeContainer
    | SignalContainer
    | UpdateLimits
    | RenameContainer
    | DisconnectNetwork
    | ConnectNetwork
    | RemoveContainer
)


class Actor:
    """Carries out actions, from any number of threads.

    `other_actions` carry out the actions on networks and builds. `mounts` gives the places of this host that are bound
    into a container, `agents` the runtime of an agent, `accounts` the files that name a user (None: no names are
    given), `authorities` the file of the host's authorities (None: they are not given).
    `before_end` is called before a container is killed. `pausing` is held while one is paused. `holding` keeps events
    from inspecting a container that is inspected here anyway. `hibernation` judges the host's swap, read then.
    `restorer` gives a new container its snapshot's files. A container is neither paused nor resumed while
    `is_capturing` is true of it. `renew_facts` asks the engine about itself again.
    """

    def __init__(
        self,
        instance_id: str,
        client: Client,
        view: View,
        observer: Observer,
        *,
        background: BackgroundObserver,
        cgroups: Cgroups,
        other_actions: Mapping[type, Callable[[Any], Outcome]],
        mounts: HostMounts,
        agents: AgentRuntimes,
        accounts: Accounts | None,
        authorities: HostAuthorities | None,
        pulls: Pulls,
        registries: Registries,
        before_kill: Callable[[str], None],
        pausing: Callable[[str], AbstractContextManager[None]],
        holding: Callable[[str], AbstractContextManager[None]],
        hibernation: Callable[[int], HibernationAbility],
        restorer: Restorer,
        is_capturing: Callable[[str], bool],
        renew_facts: Callable[[], None],
    ) -> None:
        self._instance_id = instance_id
        self._client = client
        self._view = view
        self._observer = observer
        self._background = background
        self._cgroups = cgroups
        self._before_kill, self._mounts, self._agents, self._accounts = before_kill, mounts, agents, accounts
        self._pulls, self._registries, self._authorities = pulls, registries, authorities
        self._pausing, self._holding, self._hibernation = pausing, holding, hibernation
        self._restorer, self._is_capturing, self._renew_facts = restorer, is_capturing, renew_facts
        self._do: dict[type, Callable[[Any], Outcome]] = {
            PullImage: self._pull,
            CreateContainer: self._create,
            StartContainer: self._start,
            SignalContainer: self._signal,
            PauseContainer: self._pause,
            UnpauseContainer: self._unpause,
            HibernateContainer: self._hibernate,
            WakeContainer: self._wake,
            UpdateLimits: self._update,
            RenameContainer: self._rename,
            DisconnectNetwork: self._disconnect,
            ConnectNetwork: self._connect,
            ReadTail: self._read_tail,
            RemoveContainer: self._remove,
            BindMounts: self._bind,
            RemoveVolumes: mounts.remove_volumes,
            CheckFiles: mounts.check_files,
            SaveFiles: self._save_files,
            RemoveFiles: mounts.remove_files,
            RestoreRoot: self._restore_root,
            **other_actions,
        }

    def act(self, action: Action) -> Outcome:
        """Carry out one action. Errors of the engine become outcomes."""
        try:
            with self._holding(_name_of(action)):
                return self._do[type(action)](action)
        except Foreign as foreign:
            return Transient("ForeignContainer", f"{foreign}; Paddock never touches it")
        except Fault as fault:
            if fault.unreachable:
                self._background.request()
            container_id = getattr(action, "container_id", "")
            if fault.kind == "timeout" and container_id and not self._observer.free(container_id):
                # The next observation tells whether all containers hang. Until then no other call waits for this one.
                self._observer.doubt(container_id)
            if fault.is_gone:
                return Waiting(
                    _GONE_RETRY_SECONDS, "ContainerGone", f"the container was removed meanwhile: {fault.message}"
                )
            return outcome_of(fault)

    def _pull(self, action: PullImage) -> Outcome:
        try:
            pull(self._client, action.image, self._pulls, self._registries)
        except RegistryRefused as refused:
            return self._not_pulled(action.image, str(refused), str(refused))
        except Fault as fault:
            if fault.kind == "connection":
                raise
            return self._not_pulled(action.image, fault.message, not_pulled(fault.status, fault.message))
        return Ok()

    def _not_pulled(self, image: str, answer: str, reason: str) -> Outcome:
        """Return the outcome of a failed pull. The answer is for the log alone."""
        _log.warning("image pull failed: %s: %.1000r", image, answer)
        return Transient("ImagePullFailed", _no_image(image, self._registries.message(image, reason)))

    def _create(self, action: CreateContainer) -> Outcome:
        """Create a container, once its image, profile and agent are there."""
        if action.labels.get(own.INSTANCE) != self._instance_id or action.labels.get(own.UID) != action.uid:
            return Terminal("InvalidConfig", f"{action.config.name}: its labels belong to another store or object")
        # A pinned image: the same name may mean another one by now.
        image = action.image_id or action.config.image
        if source := action.config.restore_from:
            captured = self._restorer.image_of(action.labels.get(own.NAMESPACE, ""), source)
            if captured is None:
                return Transient(SNAPSHOT_MISSING, missing_message(source))
            image = captured
        try:
            seccomp = profile(action.config.seccomp) if action.config.seccomp else ""
        except NoProfile as error:
            return Transient("NoSeccompProfile", str(error))
        try:
            checked = check_image(self._client, image, action.config)
            if checked.refusal:
                return (Terminal if checked.terminal else Transient)("ImageRefused", checked.refusal)
            runtime = self._agents.ensure(action.config.agent) if action.config.agent else ""
            # It is the outcome of a failed call then.
            if not isinstance(runtime, str):
                return runtime
            config = replace(action.config, user=checked.user)
            files = self._files_in_etc(action.uid, {**checked.accounts, **network_files(config)})
            trusted = self._host_authorities(action, config)
            body = create_body(
                trusting_host(config, checked.env) if trusted else config,
                {**checked.labels, **action.labels},
                image,
                seccomp,
                checked.counted,
                swappiness=self._view.now.facts.cgroup_version == "1",
                networked=not {f"/etc/{name}" for name in network_files(config)}
                & {bound_file["Target"] for bound_file in files},
            )
            places = self._mounts.sources(action.uid, action.config.mount_points)
            body["HostConfig"]["Mounts"] = [*places, *files, *trusted, *([mount_of(runtime)] if runtime else [])]
            body["HostConfig"]["GroupAdd"] = list(checked.groups)
            path = f"/containers/create?name={quote(action.config.name, safe='')}"
            answer = self._client.post("containers.create", path, body)
        except Fault as fault:
            if fault.is_gone:
                return Transient("ImageMissing", _image_missing(action))
            # The name may be that of this very container: the answer to an earlier call was lost.
            if fault.status == 409:
                return self._name_taken(action)
            if fault.status == BAD_REQUEST and self._is_runtime_gone(action.config.host_runtime):
                return Waiting(_GONE_RETRY_SECONDS, "RuntimeGone", f"{action.config.name}: {fault.message}")
            raise
        return Ok(self._observer.read(str(answer["Id"])).container.id, notes=checked.notes)

    def _is_runtime_gone(self, host_runtime: str) -> bool:
        """Tell whether the engine has lost the runtime that was chosen for it; then another one is chosen."""
        if not host_runtime:
            return False
        self._renew_facts()
        return host_runtime not in self._view.now.facts.runtimes

    def _files_in_etc(self, uid: str, files: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the mounts of these files; none where they can't be written."""
        return self._accounts.mounts(uid, files) if self._accounts and files else []

    def _host_authorities(self, action: CreateContainer, config: ContainerConfig) -> Sequence[Mapping[str, Any]]:
        """Return the mount of the host's authorities, if the container is a sandbox's that trusts them."""
        is_sandbox = action.labels.get(own.ROLE) == "sandbox"
        return self._authorities.mounts() if self._authorities and is_sandbox and trusts_host(config) else []

    def _restore_root(self, action: RestoreRoot) -> Outcome:
        container = self._startable(action)
        if container is None:
            return Waiting(_GONE_RETRY_SECONDS, "ContainerGone", f"{action.name}: the container is gone")
        bind = BindMounts(
            *(action.uid, action.name, action.namespace, container.image_id, container.user or action.user, (), ()),
            why=action.why,
            own_id=action.own_id,
        )
        try:
            return self._restorer.restore_root(action, container, self._mounts.user_ids(bind))
        except OSError as error:
            return Transient("RestoreFailed", f"{action.name}: its files can't be restored: {error.strerror or error}")

    def _name_taken(self, action: CreateContainer) -> Outcome:
        name = action.config.name
        try:
            holder = self._observer.read(name).container
        except Foreign as foreign:
            return _name_conflict(name, f"the container {foreign.id[:12]} of {foreign.owner}")
        except Fault as fault:
            if fault.is_gone:  # removed between the two calls
                return Waiting(
                    _GONE_RETRY_SECONDS, "NameConflict", f"the name {name} was taken a moment ago and is free again"
                )
            raise
        if holder.uid != action.uid:
            return _name_conflict(name, f"the container {holder.id[:12]} of another object (uid {holder.uid})")
        return Ok(holder.id)

    def _start(self, action: StartContainer) -> Outcome:
        container = self._startable(action)
        if container is None:
            return Waiting(_GONE_RETRY_SECONDS, "ContainerGone", f"{action.name}: the container is gone")
        try:
            self._client.post("containers.start", f"/containers/{container.id}/start", container=container.id)
        except Fault as fault:
            if fault.unreachable or fault.is_gone:
                raise
            now = self._observer.read(container.id).container
            if now.state is State.RUNNING:
                return Ok(now.id)
            if fault.rules_lost:
                raise
            if _NO_DRIVER in fault.message:
                return Terminal("NoDeviceDriver", f"{action.name} requests gpus; {_WITHOUT_DRIVER}: {fault.message}")
            reason = START_BLOCKED if fault.left_behind else "StartFailed"
            return Transient(reason, f"{action.name} does not start: {in_words(fault.message, now.image)}")
        return Ok(self._observer.read(container.id).container.id)

    def _startable(self, action: StartContainer | ConnectNetwork | RestoreRoot) -> Container | None:
        if action.container_id:
            return self._ours(action.uid, action.container_id)
        container = self._view.by_name(action.uid, action.name)
        if container is not None:
            return container
        try:
            return _of_object(action.uid, self._observer.read(action.name).container)
        except Fault as fault:
            if fault.is_gone:
                return None
            raise

    def _signal(self, action: SignalContainer) -> Outcome:
        return self._settle(
            action,
            "containers.kill",
            f"/containers/{action.container_id}/kill?signal={quote(action.signal, safe='')}",
            done=lambda now: now is None or now.state not in _LIVE,
            ending=True,
        )

    def _pause(self, action: PauseContainer | HibernateContainer) -> Outcome:
        if self._is_capturing(action.container_id):
            return _BEING_CAPTURED
        with self._pausing(action.container_id):
            return self._settle(
                action,
                "containers.pause",
                f"/containers/{action.container_id}/pause",
                done=lambda now: now is not None and now.state is State.PAUSED,
            )

    def _hibernate(self, action: HibernateContainer) -> Outcome:
        """Freeze it, and move its memory to swap. Where swap is, is judged just before: it may have changed."""
        containers = (container for group in self._view.now.containers.values() for container in group)
        memories = (container.frozen_memory for container in containers)
        ability = self._hibernation(sum(memory.swapped_bytes for memory in memories if memory is not None))
        if not ability.available:
            return Transient(NOT_HIBERNATED, f"{action.name} is not hibernated: {ability.message}")
        outcome = self._pause(action)
        if not isinstance(outcome, Ok):
            return outcome
        try:
            page_out(self._cgroups, action.container_id, self._observer.container_of(action.container_id).pid)
        except (Unreadable, OSError, ValueError, KeyError) as error:
            self._unpause(action)
            return Transient(NOT_HIBERNATED, f"{action.name}: its memory can't be moved to swap: {error}")
        self._observer.read(action.container_id)
        return outcome

    def _unpause(self, action: UnpauseContainer | WakeContainer | HibernateContainer) -> Outcome:
        if self._is_capturing(action.container_id):
            return _BEING_CAPTURED
        container = self._ours(action.uid, action.container_id)
        if container is not None and container.state is State.PAUSED:
            allow_no_swap(self._cgroups, container.id, container.pid)
        return self._settle(
            action,
            "containers.unpause",
            f"/containers/{action.container_id}/unpause",
            done=lambda now: now is not None and now.state is State.RUNNING,
        )

    def _wake(self, action: WakeContainer) -> Outcome:
        """Unpause it. From a disk its memory is read back at once: page by page, as it is used, would take long."""
        outcome = self._unpause(action)
        if isinstance(outcome, Ok) and self._hibernation(0).reason in ("EncryptedSwap", "PlainSwap"):
            read_in(self._cgroups, action.container_id, self._observer.container_of(action.container_id).pid)
        return outcome

    def _rename(self, action: RenameContainer) -> Outcome:
        try:
            return self._settle(
                action,
                "containers.rename",
                f"/containers/{action.container_id}/rename?name={quote(action.name, safe='')}",
                done=lambda now: now is not None and now.name == action.name,
            )
        except Fault as fault:
            if fault.status == 409:
                return _name_conflict(action.name, "another container")
            raise

    def _disconnect(self, action: DisconnectNetwork) -> Outcome:
        return self._settle(
            action,
            "networks.disconnect",
            lambda api: api.disconnect_container_from_network(action.container_id, action.network, force=True),
            done=lambda now: now is None or action.network not in now.networks,
        )

    def _connect(self, action: ConnectNetwork) -> Outcome:
        """Attach a container to a network, unless it is there already."""
        container = self._startable(action)
        if container is None:
            raise _missing_container(action.container_id or action.name)
        action = replace(action, container_id=container.id)
        # One that was made without the engine's networks is on `none` as soon as it is on no other.
        current = self._now(container.id) or container
        if action.network in current.networks:
            return Ok(container.id)
        if current.networks == (NO_NETWORK,):
            return Transient("Conflict", f"{action.name} was made without a network; only a new container has one")
        try:
            return self._settle(
                action,
                "networks.connect",
                lambda api: api.connect_container_to_network(
                    action.container_id,
                    action.network,
                    action.address or None,
                    aliases=list(action.aliases),
                    links=[(sandbox, name) for name, sandbox in action.peer_names],
                ),
                done=lambda now: now is not None and action.network in now.networks,
            )
        except Fault as fault:
            if fault.status == 400:  # not for its config: another network was attached meanwhile, which will be seen
                return Transient("Conflict", fault.message)
            raise

    def _read_tail(self, action: ReadTail) -> Outcome:
        if self._ours(action.uid, action.container_id) is None:
            return Ok(action.container_id, GONE)
        return Ok(action.container_id, read_tail(self._client, action.container_id, action.since))

    def _remove(self, action: RemoveContainer) -> Outcome:
        try:
            return self._settle(
                action,
                "containers.remove",
                lambda api: api.remove_container(action.container_id, v=True, force=True),
                done=lambda now: now is None,
                ending=True,
            )
        except Fault as fault:
            if fault.status == 409:
                return Waiting(_REMOVING_RETRY_SECONDS, "BeingRemoved", fault.message)
            raise

    def _update(self, action: UpdateLimits) -> Outcome:
        container = self._ours(action.uid, action.container_id)
        if container is None:
            raise _missing_container(action.container_id)
        delay = too_small(self._cgroups, container, action.limits)
        if delay is not None:
            return delay
        try:
            path, body = f"/containers/{container.id}/update", update_body(action.limits)
            self._client.post("containers.update", path, body, container=container.id)
        except Fault as fault:
            if fault.status == 500 and (shrinks(container, action.limits) or container.out_of_band.swap_bytes):
                return in_use(f"the kernel refused the new limit: {fault.message}")
            raise
        updated = self._observer.read(container.id).container
        if updated.state in _LIVE and updated.limits is None:
            return Transient("LimitsUnread", f"{action.name}: its limits can't be read back from its cgroup; retrying")
        wrong = ", ".join((*differences(action.limits, updated.limits), *remaining_drift(updated.out_of_band)))
        if wrong:
            return Transient(
                "LimitsNotApplied", f"the engine accepted the limits, but the kernel does not enforce them: {wrong}"
            )
        return Ok(container.id)

    def _bind(self, action: BindMounts) -> Outcome:
        """Bind, then check a running sandbox from inside."""
        if action.container_id:
            _of_object(action.uid, self._observer.container_of(action.container_id))
        try:
            outcome = self._mounts.bind(action)
        except Fault as fault:
            if fault.is_gone:
                return Transient("ImageMissing", _no_image(action.image))
            raise
        return self._visible(action) if action.container_id and isinstance(outcome, Ok) else outcome

    def _save_files(self, action: SaveFiles) -> Outcome:
        """Save, unless the container was started again meanwhile: its files change."""
        for stored in self._view.now.containers.get(action.uid, ()):
            now = self._now(stored.id)
            if now is not None and now.state in _LIVE:
                return Waiting(_GONE_RETRY_SECONDS, "StillRunning", f"{action.name} runs; its files are not saved")
        outcome = self._mounts.save_files(action)
        for stored in self._view.now.containers.get(action.uid, ()):
            self._now(stored.id)
        return outcome

    def _visible(self, action: BindMounts) -> Outcome:
        """Check that the sandbox sees what was bound; what does not reach it by itself is attached inside, too."""
        observed, why = self._observer.inside(action.container_id), ""
        lacking = _lacking(action, observed)
        if lacking:
            why = self._mounts.bind_inside(action, observed, lacking)
            lacking = _lacking(action, observed := self._observer.inside(action.container_id))
        if lacking:
            paths = ", ".join(mount.path for mount in lacking)
            why = why or "something else is mounted over it"
            return Transient("MountNotSeen", f"{paths} can't be seen from inside {action.name}: {why}")
        return Ok(observed.id)

    def _settle(
        self,
        action: OnContainer,
        operation: str,
        call: str | Callable[[Any], None],
        *,
        done: Callable[[Container | None], bool],
        ending: bool = False,
    ) -> Outcome:
        """Call, then inspect the container. After a refusal the action is done if `done` is true of the container.

        `call` is a call of docker-py, or the path of a post.
        """
        if self._ours(action.uid, action.container_id) is None:
            if done(None):
                return Ok(action.container_id)
            raise _missing_container(action.container_id)
        if ending:
            self._before_kill(action.container_id)
        try:
            if isinstance(call, str):
                self._client.post(operation, call, container=action.container_id)
            else:
                self._client.call(operation, call, container=action.container_id)
        except Fault as fault:
            if fault.unreachable or not (
                done(self._now(action.container_id))
                or (isinstance(action, _Thaw) and self._wait_until(done, action.container_id))
            ):
                raise
            return Ok(action.container_id)
        if isinstance(action, RemoveContainer):
            self._view.forget(action.container_id)
        elif not done(self._now(action.container_id)) and not ending:
            self._wait_until(done, action.container_id)
        return Ok(action.container_id)

    def _wait_until(self, done: Callable[[Container | None], bool], container_id: str) -> bool:
        """Inspect until `done` is true, for half a second at most; return whether it is.

        The runtime's event of a pause may reach the engine after an unpause, and then wins for some milliseconds.
        """
        pause_seconds = 0.005
        while pause_seconds < _STALE_STATE_SECONDS:
            time.sleep(pause_seconds)
            if done(self._now(container_id)):
                return True
            pause_seconds *= 2
        return False

    def _now(self, container_id: str) -> Container | None:
        """Inspect the container; None if it is gone."""
        try:
            return self._observer.read(container_id).container
        except Fault as fault:
            if fault.is_gone:
                return None
            raise

    def _ours(self, uid: str, container_id: str) -> Container | None:
        """Return the container of that object; None if it is gone. Raises Foreign, Fault."""
        if self._view.is_gone(container_id):
            return None
        view_entry = self._view.entry_of(container_id)
        if view_entry is not None and view_entry.container.state is State.UNKNOWN:
            raise Fault("busy", hanging_message(container_id))
        container = view_entry.container if view_entry is not None else self._now(container_id)
        return None if container is None else _of_object(uid, container)


def _lacking(action: BindMounts, container: Container) -> tuple[Mount, ...]:
    """Return the mounts of an action that a running sandbox does not see."""
    if container.state is not State.RUNNING:
        return ()
    return missing(action.mounts, container.inside, container.bound, recorded=not container.unrecorded)


def _of_object(uid: str, container: Container) -> Container:
    if container.uid != uid:
        raise Foreign(container.id, container.name, f"the object with uid {container.uid or '(none)'}, not {uid}")
    return container


def _missing_container(container_id: str) -> Fault:
    return Fault("4xx", f"no such container: {container_id[:12]}", status=404)


def _name_of(action: Action) -> str:
    """Return the name of an action's container."""
    if isinstance(action, PullImage | BuildImage):
        return ""
    return action.config.name if isinstance(action, CreateContainer) else action.name


def _name_conflict(name: str, holder: str) -> Outcome:
    """Return the outcome of a name conflict."""
    return Transient(
        "NameConflict",
        f"the name {name} is taken by {holder}; rename or remove that container (`docker rename {name} <other>`)",
    )


def _image_missing(action: CreateContainer) -> str:
    """Describe a missing image of a container to create."""
    if not action.image_id:
        return _no_image(action.config.image)
    return (
        f"{action.config.image}: the image this sandbox was created from is no longer on this host; "
        "load it again, or change spec.template to use the present image of that name"
    )


def _no_image(image: str, why: str = "") -> str:
    """Describe an image that is neither here nor pulled. `why` is the answer to the pull."""
    return f"{image} is not on this host{f' ({why})' if why else ''}; {remedy(image)}"
