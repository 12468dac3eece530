"""pydantic's errors as messages for users: the wrong value as written, and the remedy."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from controller.documents import model_fields
from controller.kinds.common.problem import MOST_PROBLEMS, Path, field_text
from controller.kinds.common.quantity import format_bytes, format_cpu


@dataclass(frozen=True, slots=True)
class Fault:
    """One error of a value: its path and message. `at_key`: the key is wrong, not its value."""

    path: Path
    message: str
    reason: str = "FieldValueInvalid"
    at_key: bool = False


@dataclass(frozen=True, slots=True)
class _Context:
    """Input of a message: the error, the model, the value's place in the document, and its text there."""

    error: ErrorDetails
    model: type[BaseModel]
    around: Path
    path: Path
    input_text: str

    @property
    def ctx(self) -> Mapping[str, Any]:
        return self.error.get("ctx", {})

    @property
    def value(self) -> Any:
        return self.error["input"]

    def bound(self, name: str) -> str:
        info = model_fields.field_at(self.model, self.path)
        unit = model_fields.quantity(info) if info else ""
        limit = self.ctx[name]
        return {"cpu": format_cpu, "bytes": format_bytes}.get(unit, str)(limit)


def faults(model: type[BaseModel], error: ValidationError, around: Path, text: Callable[[Path], str]) -> list[Fault]:
    """Return the faults of a failed validation, up to a maximum.

    `around` is the model's place in the document, for paths in messages; `text` gives a scalar of the document as
    written ("" if there is none).
    """
    errors = [detail for detail in error.errors(include_url=False) if not _only_items_fail(detail)]
    reported = [_fault(model, detail, around, text) for detail in errors[:MOST_PROBLEMS]]
    if len(errors) > MOST_PROBLEMS:
        unlisted_count = len(errors) - MOST_PROBLEMS
        reported.append(Fault(around, f"{unlisted_count} more problems are not listed; fix these first"))
    return reported


def _only_items_fail(error: ErrorDetails) -> bool:
    """Return True for a list that is called too short because its items are wrong: they have errors of their own."""
    return error["type"] == "too_short" and len(error["input"]) >= error.get("ctx", {})["min_length"]


def _fault(model: type[BaseModel], error: ErrorDetails, around: Path, text: Callable[[Path], str]) -> Fault:
    path, at_key = tuple(error["loc"]), False
    if path[-1:] == ("[key]",) and error["type"] != "extra_forbidden":  # a field may be called so
        path, at_key = path[:-1], True
    input_text = str(path[-1]) if at_key else text((*around, *path)) or str(error["input"])
    context = _Context(error, model, around, path, input_text)
    word = _WORDS.get(error["type"])
    message = word(context) if word else error["msg"][:1].lower() + error["msg"][1:]
    reason = _REASONS.get(error["type"], "FieldValueInvalid")
    return Fault((*around, *path), message, reason, at_key or error["type"] == "extra_forbidden")


def kind_of(value: Any) -> str:
    """Return the name of a value's type for messages."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "a boolean"
    names: tuple[tuple[type, str], ...] = ((str, "text"), (int, "a number"), (float, "a number"), (dict, "a mapping"))
    return next((name for value_type, name in names if isinstance(value, value_type)), "a list")


def _missing(context: _Context) -> str:
    info = model_fields.field_at(context.model, context.path)
    value_forms = model_fields.forms(info) if info else []
    return f"is required; add `{context.path[-1]}:`" + (f" ({value_forms[0]})" if value_forms else "")


# Fields that people know from Kubernetes, Docker, Compose and other sandbox tools, and what to write here.
_ELSEWHERE = {
    "automountServiceAccountToken": "a sandbox has no service account; leave it out",
    "cap_add": "write `security: {capabilities: [...]}` and a `securityLevel` that allows them",
    "configMap": "write the files with `paddock cp`, or put them into the image",
    "containers": "a sandbox is one container; write its fields (image, command, env) into `template`",
    "cpus": 'write `resources: {limits: {cpu: "4"}}`',
    "depends_on": "wait with `paddock wait --for=condition=Ready sandbox/NAME`",
    "docker_llm": "write a ModelServer for each model (specs/modelserver/smol.yaml), or install one with `paddock "
    "plugin install docker-llm-provider --set image=IMAGE --grant`; sandboxes reach them all at http://127.0.0.1:8090",
    "emptyDir": "write `tmpfs: [{mountPath: /tmp, size: 64Mi}]`",
    "enabled": "write `runState: Running`, or Suspended",
    "entrypoint": "write `command: [program, argument]`, or only `args: [argument]` after the image's own",
    "envFrom": "name each variable in `env`, or an operator's secret in `secrets`",
    "environment": "write `env: [{name: NAME, value: VALUE}]`",
    "execute_in": "an agent's tools always run in the sandbox of the run; leave it out",
    "expose": "every port can be reached by `paddock port-forward NAME PORT`; leave it out",
    "gpus": "write `resources: {limits: {gpus: 1}}`",
    "grpc": "write `tcpSocket: {port: 8080}`, or `exec` with a client in the image",
    "hostname": "the sandbox's name is its host name; leave it out",
    "hostNetwork": "a sandbox never shares the host's network; allow hosts with `network: {allowedHosts: [...]}`",
    "hostPort": "ports are reached by `paddock port-forward NAME LOCAL:PORT`; leave it out",
    "httpHeaders": "only the Host header can be set; write `host: NAME`",
    "imagePullPolicy": "an image is pulled if it is missing, and pinned to its digest; leave it out",
    "imagePullSecrets": "log the host's engine in to the registry; leave it out",
    "initContainers": "run the preparation with `paddock exec`, or put it into the image",
    "livenessProbe": "write it once, into the template (`liveness: {...}` is the same)",
    "max_containers": "write `maxReplicas` in a SandboxPool",
    "mem_limit": "write `resources: {limits: {memory: 512Mi}}`",
    "memory": "write `resources: {limits: {memory: 8Gi}}`",
    "networkMode": "the security level decides; write `securityLevel: full-isolation` for none, and hosts by "
    "`network: {allowedHosts: [...]}`",
    "nodeName": "Paddock runs on one host; leave it out",
    "nodeSelector": "Paddock runs on one host; leave it out",
    "ports": "no port is published; reach one with `paddock port-forward NAME LOCAL:PORT`",
    "preload": "write a SandboxPool for each image, with `warmReplicas` as its count",
    "privileged": "no level allows it; see the levels with `paddock get securityprofiles`",
    "provider": "write `agent: {provider: NAME, model: MODEL}` in a stage, and `models: [{providerRef: {name: "
    "NAME}}]` in a sandbox",
    "readinessProbe": "write it once, into the template (`readiness: {...}` is the same)",
    "readOnlyRootFs": "write `readOnlyRootFilesystem` into the template",
    "replicas": "a SandboxPool has `warmReplicas` and `maxReplicas`; a Sandbox is one",
    "requests": "limits are what is reserved; write `resources: {limits: {...}}`",
    "restart": "write `restartPolicy: Always`, OnFailure or Never in the sandbox's spec",
    "sandbox.copy": "write `copy: {from: /workspace/dist, artifact: dist}`; `paddock workflow run NAME --output "
    "FOLDER` unpacks it",
    "sandbox.create": "write the run's sandbox once, beside `stages`: `sandbox: {template: {image: IMAGE}, resources: "
    "{limits: {...}}}`",
    "sandbox.exec": "write `exec: {commands: [...]}`",
    "sandbox_enabled": "every server runs in a sandbox; a server may say `sandbox: Preferred`, and a user then "
    "connects with --allow-unsandboxed",
    "security": "write `securityLevel: NAME`, and capabilities as `security: {capabilities: [...]}` in the template",
    "securityContext": "write `user`, `security` and `securityLevel`",
    "serviceAccountName": "a sandbox has no service account; leave it out",
    "shutdown_timeout": "write `shutdownGracePeriodSeconds: 10` in a SandboxPool",
    "source": "a folder of the host is the sandbox's `workspace: {hostPath: PATH}`; a volume has `name`, "
    "`mountPath` and `size`",
    "startup_timeout": "write `startupDeadlineSeconds: 30` in a SandboxPool",
    "startupProbe": "write it once, into the template (`startup: {...}` is the same)",
    "target": "write `mountPath`",
    "terminationGracePeriodSeconds": "write `lifecycle: {shutdownGracePeriodSeconds: 10}`",
    "tolerations": "Paddock runs on one host; leave it out",
    "tools": "write `agent: {tools: [...]}` in a stage",
    "total_cpus": 'write `quota: {cpu: "16"}` in a SandboxPool, or a Quota for the namespace',
    "total_memory": "write `quota: {memory: 32Gi}` in a SandboxPool, or a Quota for the namespace",
    "valueFrom": "values are plain; an operator's secret is a file: `secrets: [{name: NAME, mountPath: PATH}]`",
    "volumeMounts": "a volume names its own `mountPath`: `volumes: [{name: data, mountPath: /data, size: 1Gi}]`",
    "warm_containers": "write `warmReplicas` in a SandboxPool",
    "working_dir": "write `workingDir`",
}


# Blocks of configuration at the top of a file, and the command that does the same.
_BLOCKS = {
    **dict.fromkeys(
        ("workflow", "workflows", "stages"),
        "write a Workflow with these stages (specs/workflow/); `paddock apply -f FILE` and `paddock workflow run NAME` "
        "run it",
    ),
    **dict.fromkeys(
        ("container_pool", "container_pools", "containerPool", "pool"),
        "write a SandboxPool for each image (specs/sandboxpool/) with `warmReplicas` and `maxReplicas`; `paddock "
        "apply -f FILE` creates them",
    ),
    **dict.fromkeys(
        ("mcp_servers", "mcpServers", "mcp"),
        "add each server with `paddock mcp enable -- COMMAND ARGUMENT...`, or all of a client's JSON file with "
        "`paddock mcp import FILE`",
    ),
    **dict.fromkeys(
        ("providers", "llm", "llm_providers"),
        "add each with `paddock config provider add NAME --type openai` (or anthropic, gemini, docker)",
    ),
    "security": "choose a level for each sandbox: `paddock project config sandbox --project NAME --security-level "
    "development`; a level of your own is a SecurityProfile (specs/securityprofile/)",
}


def remedy_for_block(name: str) -> str:
    """Return what to do instead of a block of configuration at the top of a file; "" if it is none."""
    return _BLOCKS.get(name) or remedy_for(name)


def remedy_for(field: str) -> str:
    """Return what to write instead of a field of other tools; "" if it is none."""
    return _ELSEWHERE.get(field, "")


def _unknown(context: _Context) -> str:
    name = str(context.path[-1])
    if remedy := remedy_for(name):
        return f"unknown field; {remedy}"
    holder = model_fields.model_at(context.model, context.path[:-1])
    field_names = list(model_fields.fields_by_spelling(holder)) if holder else []
    if meant := model_fields.closest(name, field_names):
        return f"unknown field; did you mean `{meant}`?"
    if place := model_fields.elsewhere(context.model, name):
        return f"unknown field here; did you mean `{field_text((*context.around, *place))}`?"
    return f"unknown field; known here: {', '.join(field_names)}"


def _text(context: _Context) -> str:
    if isinstance(context.value, bool | int | float):
        text = context.input_text
        return f'must be text, and `{text}` is {kind_of(context.value)}; put it in quotes: "{text}"'
    return f"must be text, not {kind_of(context.value)}"


def _integer(context: _Context) -> str:
    if isinstance(context.value, str) and context.value.strip().lstrip("+-").isdigit():
        return f"must be a whole number, and `{context.value}` is text; remove the quotes"
    return f"must be a whole number, not {_describe_input(context)}"


def _boolean(context: _Context) -> str:
    note = ""
    if isinstance(context.value, str) and context.value.lower() in ("yes", "no", "on", "off", "y", "n"):
        note = f" (`{context.value}` is text in YAML 1.2)"
    return f"must be true or false, not {_describe_input(context)}{note}"


def _describe_input(context: _Context) -> str:
    simple = isinstance(context.value, str | int | float) and context.input_text
    return f"`{_shorten(context.input_text)}`" if simple else kind_of(context.value)


def _shorten(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _choice(context: _Context) -> str:
    choices = str(context.ctx["expected"]).replace("'", "")
    return f"must be {choices}, not {_describe_input(context)}"


def _pattern(context: _Context) -> str:
    info = model_fields.field_at(context.model, context.path)
    value_forms = model_fields.forms(info) if info else []
    if not value_forms:
        return f"`{_shorten(context.input_text)}` does not fit; it must match {context.ctx['pattern']}"
    form = value_forms[0] if context.error["loc"][-1] == "[key]" else value_forms[-1]
    return f"`{_shorten(context.input_text)}` does not fit; write {form}"


def _too_short(context: _Context) -> str:
    least = context.ctx["min_length"]
    return "must not be empty" if least == 1 else f"must have at least {least} characters"


def _mapping(context: _Context) -> str:
    holder = model_fields.model_at(context.model, context.path)
    field_names = ", ".join(model_fields.fields_by_spelling(holder)) if holder else ""
    return (
        f"must be a mapping{f' with the fields {field_names}' if field_names else ''}, not {_describe_input(context)}"
    )


def _list(context: _Context) -> str:
    return f"must be a list (`- ` before each item, or [a, b]), not {_describe_input(context)}"


_WORDS: Mapping[str, Callable[[_Context], str]] = {
    "missing": _missing,
    "extra_forbidden": _unknown,
    "string_type": _text,
    "int_type": _integer,
    "int_parsing": _integer,
    "int_from_float": _integer,
    "float_type": lambda context: f"must be a number, not {_describe_input(context)}",
    "bool_type": _boolean,
    "bool_parsing": _boolean,
    "literal_error": _choice,
    "string_pattern_mismatch": _pattern,
    "string_too_short": _too_short,
    "string_too_long": lambda context: (
        f"must have at most {context.ctx['max_length']} characters, has {len(context.value)}"
    ),
    "too_short": lambda context: f"must have at least {context.ctx['min_length']} item(s)",
    "too_long": lambda context: (
        f"must have at most {context.ctx['max_length']} items, has {context.ctx['actual_length']}"
    ),
    "greater_than_equal": lambda context: f"must be at least {context.bound('ge')}, not {_describe_input(context)}",
    "less_than_equal": lambda context: f"must be at most {context.bound('le')}, not {_describe_input(context)}",
    "greater_than": lambda context: f"must be more than {context.bound('gt')}, not {_describe_input(context)}",
    "less_than": lambda context: f"must be less than {context.bound('lt')}, not {_describe_input(context)}",
    "value_error": lambda context: str(context.ctx["error"]),
    "model_type": _mapping,
    "model_attributes_type": _mapping,
    "dict_type": _mapping,
    "tuple_type": _list,
    "list_type": _list,
}
_REASONS = {
    "missing": "FieldValueRequired",
    "extra_forbidden": "FieldValueForbidden",
    "literal_error": "FieldValueNotSupported",
    "string_type": "FieldValueTypeInvalid",
    "int_type": "FieldValueTypeInvalid",
    "bool_type": "FieldValueTypeInvalid",
    "string_too_long": "FieldValueTooLong",
    "too_long": "FieldValueTooMany",
}
