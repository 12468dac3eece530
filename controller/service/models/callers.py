"""Callers of the model gateway on the host: a Paddock token of role user in the namespace."""

from controller.kinds.access.access import AccessRequest
from controller.policy.access import decide
from controller.ports import Clock, Tokens
from controller.service import errors
from controller.service.access import access
from controller.service.access.audit import Recorder
from controller.service.access.authenticate import Identify, Names

_SOURCE = "models"
_NOBODY = Names(lambda _: None, lambda _: None, lambda _: None)


class ModelCallers:
    """Authenticates and authorizes callers by their tokens. Any thread may call it."""

    def __init__(self, tokens: Tokens, clock: Clock, recorder: Recorder) -> None:
        self._identify = Identify(tokens=tokens, clock=clock, names=_NOBODY, owners=frozenset())
        self._recorder = recorder

    def authorize(self, token: str, namespace: str) -> str:
        """Return the caller's name. Raises Unauthorized; Forbidden. Refusals are audited."""
        try:
            caller = self._identify.token(token, _SOURCE)
        except errors.Unauthorized as error:
            self._recorder.record_unknown(_SOURCE, str(error))
            raise
        ask = AccessRequest("use", "Provider", namespace, "", "v1")
        decision = decide(caller, ask)
        if not decision.allowed:
            with access.acting(caller):
                self._recorder.record_refusal(ask, decision.reason)
            raise errors.Forbidden(decision.reason)
        return caller.name
