"""The model gateway: its supervisor, over the services and the reconcile loop."""

from functools import partial

from controller.app.core import Core
from controller.app.errors import CannotStart
from controller.app.loop import LoopParts
from controller.engine.engine import DockerEngine
from controller.gateway.bindings import Bindings, bindings_file
from controller.gateway.ledger import Ledger
from controller.gateway.supervisor import GatewayParts, Supervisor
from controller.kinds.observed.models import GatewayView
from controller.policy.levels.levels import Policy
from controller.policy.profiles import as_seen
from controller.ports import Secrets
from controller.service.models.callers import ModelCallers
from controller.service.models.keys import provider_key
from controller.service.services import Services
from controller.store.sql_store import SqlStore


def start_gateway(
    core: Core,
    services: Services,
    store: SqlStore,
    engine: DockerEngine,
    secrets: Secrets,
    policy: Policy,
    loop: LoopParts,
) -> None:
    """Start the supervisor. It starts the gateway's process once there are providers or model servers.

    Nothing on a daemon that keeps no host: the gateway is for the sandboxes of its own.
    """
    if not core.settings.is_host:
        return
    settings, audit = core.settings, services.model_use.counted(store.audit)
    ledger = Ledger(settings.state_dir / "models" / "budgets.json", audit=audit, clock=core.clock, meter=core.meter)
    services.model_use.budgets = ledger.usage
    bindings = Bindings(bindings_file(settings.state_dir))
    try:
        bindings.bind_used(store.list("Provider")[0])
    except OSError as error:
        raise CannotStart(
            f"{settings.state_dir}: can't be written ({error}); the hosts of keys belong there"
        ) from error

    def publish(view: GatewayView) -> None:
        core.gateway.now = view

    supervisor = Supervisor(
        GatewayParts(
            snapshot=core.last,
            publish=publish,
            wake=core.waker.wake,
            policy=partial(as_seen, policy),
            port=settings.models_port,
            key_of=partial(provider_key, secrets, bindings.hosts),
            listeners=engine.listeners,
            servers=services.model_servers,
            callers=ModelCallers(store.tokens, core.clock, services.recorder),
            ledger=ledger,
            meter=core.meter,
        )
    )
    core.undo.callback(supervisor.close)
    core.models.supervisor = supervisor
    loop.reconcile_pass.report_models = supervisor.observe_pass
    supervisor.start()
