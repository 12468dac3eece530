"""Reviews of one's own access: `kubectl auth can-i` and `kubectl auth whoami`, in JSON or protocol buffers."""

import json
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from controller.api.common.dependencies import UseCases
from controller.api.common.paths import ACCESS_REVIEW, KUBERNETES_PROTOBUF, RULES_REVIEW, SELF_REVIEW
from controller.api.common.query_names import ANY, takes_query
from controller.api.kubernetes import protobuf
from controller.kinds.access.access import VERBS, AccessRequest, Decision, Verb
from controller.kinds.registry import Registry
from controller.kinds.sandbox import KIND as SANDBOX
from controller.service import errors
from controller.service.access import access
from controller.version import API_GROUP

Json = dict[str, Any]
_VERBS: dict[str, Verb] = {"watch": "list", "patch": "update", "deletecollection": "delete"}
_VERBS |= {verb: verb for verb in VERBS}
_OF_PODS = {"log": "logs"}  # sub-resource of a pod -> that of its sandbox
# Field number in Kubernetes' messages -> its name.
_ATTRIBUTES = {1: "namespace", 2: "verb", 3: "group", 4: "version", 5: "resource", 6: "subresource", 7: "name"}
routes = APIRouter(include_in_schema=False)


@routes.post(ACCESS_REVIEW, status_code=201)
@takes_query(ANY)
async def access_review(services: UseCases, request: Request) -> JSONResponse:
    """Tell if the caller may do one thing."""
    spec = await _spec(request)
    attributes = spec.get("resourceAttributes")
    if isinstance(attributes, dict):
        answer = _decide(services.registry, {name: str(value) for name, value in attributes.items()})
    else:  # a path, such as /healthz
        answer = Decision(True)
    status = {"allowed": answer.allowed, "reason": answer.reason}
    return _review("authorization.k8s.io/v1", "SelfSubjectAccessReview", spec, status)


@routes.post(RULES_REVIEW, status_code=201)
@takes_query(ANY)
async def rules_review(services: UseCases, request: Request) -> JSONResponse:
    """List what the caller may do in a namespace."""
    spec = await _spec(request)
    rules = []
    for kind in services.registry:
        namespace = str(spec.get("namespace", "default")) if kind.namespaced else ""
        allowed = [verb for verb in VERBS if access.decision(AccessRequest(verb, kind.name, namespace)).allowed]
        if allowed:
            rules.append({"verbs": allowed, "apiGroups": [API_GROUP], "resources": [kind.plural]})
    status = {"resourceRules": rules, "nonResourceRules": [], "incomplete": False}
    return _review("authorization.k8s.io/v1", "SelfSubjectRulesReview", spec, status)


@routes.post(SELF_REVIEW, status_code=201)
@takes_query(ANY)
async def self_review() -> JSONResponse:
    """Name the caller."""
    caller = access.caller()
    user = {"username": caller.name if caller else "paddock", "groups": []}
    return _review("authentication.k8s.io/v1", "SelfSubjectReview", {}, {"userInfo": user})


def _decide(registry: Registry, attributes: dict[str, str]) -> Decision:
    """Decide on a resource and a verb in Kubernetes' words."""
    resource, sub = attributes.get("resource", ""), attributes.get("subresource", "")
    if resource == "pods":
        kind, sub = SANDBOX, _OF_PODS.get(sub, sub)
    elif (known_kind := registry.by_word(resource)) is not None:
        kind = known_kind
    else:
        return Decision(False, f"no kind is called `{resource}` here; `paddock api-resources` lists them")
    verbs = VERBS if attributes.get("verb") == "*" else (_VERBS.get(attributes.get("verb", "")),)
    if None in verbs:
        return Decision(False, f"`{attributes.get('verb')}` is not a verb; use one of {', '.join(_VERBS)}")
    namespace = (attributes.get("namespace") or None) if kind.namespaced else ""
    decisions = []
    for verb in verbs:
        sub_verb: Verb = "use" if sub and sub != "logs" and verb in ("create", "get") else verb or "get"
        decisions.append(
            access.decision(AccessRequest(sub_verb, kind.name, namespace, attributes.get("name", ""), sub))
        )
    return next((decision for decision in decisions if not decision.allowed), Decision(True))


async def _spec(request: Request) -> Json:
    """Return the spec of a review. Raises BadRequest."""
    body = await request.body()
    try:
        if request.headers.get("content-type", "").startswith(KUBERNETES_PROTOBUF):
            return _protobuf_spec(protobuf.fields(protobuf.body_of(body)).get(2, b""), request.url.path)
        spec = json.loads(body or b"{}").get("spec") or {}
    except (ValueError, AttributeError) as error:
        raise errors.BadRequest(f"the review can't be read: {error}") from error
    if not isinstance(spec, dict):
        raise errors.BadRequest("the review's spec must be a mapping")
    return spec


def _protobuf_spec(spec: bytes, path: str) -> Json:
    parts = protobuf.fields(spec)
    if path != ACCESS_REVIEW:
        return {"namespace": parts[1].decode()} if 1 in parts else {}
    if 1 not in parts:
        return {}
    attributes = protobuf.fields(parts[1])
    return {
        "resourceAttributes": {
            name: attributes[number].decode() for number, name in _ATTRIBUTES.items() if number in attributes
        }
    }


def _review(api_version: str, kind: str, spec: Json, status: Json) -> JSONResponse:
    body = {"kind": kind, "apiVersion": api_version, "metadata": {}, "spec": spec, "status": status}
    return JSONResponse(body, 201)
