"""/openapi.json describes what is served: by itself, and as a fuzzer finds it on a running server."""

import json
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import pytest
import requests
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from controller.api.app import create_app
from tests.conftest import HandClock
from tests.daemon import wait_for
from tests.examples import examples
from tests.fakes.engine import FakeEngine
from tests.helpers_api import ApiStack, make_api

EXAMPLES, OF_OTHERS = examples(6), 1  # of each operation; the routes of all kinds are the same code
SECONDS = examples(8)  # after that, kinds whose routes were not asked yet are left out
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
API = "/apis/paddock/v1alpha1"
ADDRESS = "json-schema:///openapi"  # of the description, for what refers to it
ALIKE = {f"{API}/{entry}" for entry in ("hosts", "instances", "doctor")}  # as events, with fewer parameters
_EXEC = f"{API}/namespaces/{{namespace}}/sandboxes/{{name}}/execs/{{id}}"
ALIKE |= {
    _EXEC,
    f"{_EXEC}/log",
    f"{_EXEC}/kill",
    f"{API}/namespaces/{{namespace}}/sandboxes/{{name}}/inspect",
}  # as files and why, by one more name


@pytest.fixture
def description(api: ApiStack) -> dict[str, Any]:
    openapi: dict[str, Any] = api.app.openapi()
    return openapi


def refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for entry in value.values():
            yield from refs(entry)
    for single in value if isinstance(value, list) else ():
        yield from refs(single)


def test_every_reference_leads_somewhere(description: dict[str, Any]) -> None:
    schemas = description["components"]["schemas"]
    assert {ref.removeprefix("#/components/schemas/") for ref in refs(description)} <= set(schemas)


def test_every_kind_has_typed_routes(description: dict[str, Any], api: ApiStack) -> None:
    for kind in api.services.registry:
        many = f"{API}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{API}/{kind.plural}"
        listed = description["paths"][many]["get"]["responses"]["200"]["content"]
        shapes = [entry["$ref"].rpartition("/")[2] for entry in listed["application/json"]["schema"]["anyOf"]]
        assert shapes == [f"{kind.name}List", "Table"]
        assert ("application/json;stream=watch" in listed) != bool(kind.read_only)
        if not kind.read_only:
            watch = listed["application/json;stream=watch"]["schema"]["$ref"]
            assert watch.endswith(f"/{kind.name}WatchEvent")
        if kind.flat:
            continue
        spec = description["components"]["schemas"][kind.name]["properties"]["spec"]["$ref"]
        assert spec.endswith(f"/{kind.spec.__name__}")


def test_every_operation_has_a_name_words_and_an_error_body(description: dict[str, Any]) -> None:
    names = []
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            names.append(operation["operationId"])
            assert operation.get("description") or operation.get("summary"), (method, path)
            if path.startswith(API):
                error = operation["responses"]["default"]["content"]["application/json"]["schema"]["$ref"]
                assert error.endswith("/Status"), (method, path)
    assert len(names) == len(set(names))


def test_no_two_models_share_a_name(description: dict[str, Any]) -> None:
    """Generators drop what they would name twice, and every operation that uses it."""
    titles = Counter(schema["title"] for schema in description["components"]["schemas"].values() if "title" in schema)
    assert [title for title, count in titles.items() if count > 1] == []


def test_every_parameter_says_what_it_is(description: dict[str, Any]) -> None:
    (listed,) = [
        entry["get"]
        for path, entry in description["paths"].items()
        if path == f"{API}/namespaces/{{namespace}}/sandboxes"
    ]
    by_name = {parameter["name"]: parameter for parameter in listed["parameters"]}
    texts = {"labelSelector", "fieldSelector", "watch", "resourceVersion", "allowWatchBookmarks", "timeoutSeconds"}
    assert texts <= set(by_name)
    assert all(by_name[name].get("description") for name in texts)


@schemathesis.serializer("application/x-tar")
def as_it_is(_context: Any, value: Any) -> Any:
    """Stand-in of an archive, generated by the fuzzer."""
    return value if isinstance(value, bytes) else str(value).encode()


class Loopback:
    """The whole API over a real store and the fake engine, on a TCP port of this host."""

    def __init__(self, api: ApiStack) -> None:
        app = create_app(api.services, ready=lambda: api.checks, meter=api.meter, longest_watch_seconds=0.05)
        config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1)
        self._server, self._socket = uvicorn.Server(config), socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)

    def __enter__(self) -> "Loopback":
        self._thread.start()
        wait_for("the server answers", lambda: self._server.started)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()


@pytest.fixture
def loopback(tmp_path: Path, quiet: None) -> Iterator[Loopback]:
    api = make_api(tmp_path, engine=FakeEngine("fuzz", clock=HandClock()))
    with Loopback(api) as created:
        yield created
    api.services.watches.close()
    api.store.close()


def known_objects(_context: Any, parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Half of the requests are of one of few names: then objects are found, and replaced, and deleted."""
    document = dict(parameters or {})
    for name, few in (("namespace", ["default", "team"]), ("name", ["box", "crate"])):
        if len(str(document.get(name, ""))) % 2:
            document[name] = few[len(document[name]) % len(few)]
    return document


def input_schemas(description: dict[str, Any], operation: Any) -> str:
    """Return an operation's parameters and the schemas of its body as text; "" if it takes no body."""
    described = description["paths"][operation.path][operation.method.lower()]
    body = described.get("requestBody", {})
    schemas = [(type_, media["schema"]) for type_, media in sorted(body.get("content", {}).items())]
    return json.dumps([schemas, described.get("parameters", [])], sort_keys=True) if schemas else ""


@pytest.mark.timeout(300)
def test_a_fuzzer_finds_no_500_and_no_answer_that_is_not_described(loopback: Loopback) -> None:
    description = httpx.get(f"{loopback.url}/openapi.json", timeout=60).json()
    schema = schemathesis.openapi.from_dict(description)
    schema.config.update(base_url=loopback.url)
    schema.hook("map_path_parameters")(known_objects)
    counter: Counter[int] = Counter()
    bounded = partial(
        settings,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    modes, tried_inputs = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], set[str]()
    enough = time.monotonic() + SECONDS
    with requests.Session() as session:
        for observed in schema.get_all_operations():
            operation = observed.ok()
            first = operation.path.startswith(f"{API}/namespaces/{{namespace}}/sandboxes") or "{" not in operation.path
            first = first and operation.path not in ALIKE
            inputs = input_schemas(description, operation)
            using = modes if first and inputs not in tried_inputs else modes[:1]
            if inputs and first:
                tried_inputs.add(inputs)  # what is refused in them is refused by the same code everywhere
            if not first and time.monotonic() > enough:
                continue

            @bounded(max_examples=EXAMPLES if first else OF_OTHERS)
            @given(
                case=st.one_of(*(operation.as_strategy(generation_mode=generation_mode) for generation_mode in using))
            )
            def ask(case: schemathesis.Case) -> None:
                answer = case.call(session=session, timeout=60)
                counter[answer.status_code] += 1
                case.validate_response(answer, checks=CHECKS)

            ask()
    print(f"\nfuzzed: {dict(sorted(counter.items()))}")
    assert counter[200]
    assert not [code for code in counter if code >= 500]


def anchored(schema: Any) -> Any:
    """Return a schema whose references lead into the description at its address."""
    if isinstance(schema, list):
        return [anchored(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    anchoreds = {key: anchored(value) for key, value in schema.items()}
    return {**anchoreds, "$ref": ADDRESS + schema["$ref"]} if isinstance(schema.get("$ref"), str) else anchoreds


def test_every_answer_has_a_schema_and_every_json_body_a_valid_example(description: dict[str, Any]) -> None:
    checked, registry = 0, jsonschema_rs.Registry([(ADDRESS, description)])
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            bodies = {"body": operation.get("requestBody", {}), **operation["responses"]}
            for place, body in bodies.items():
                empty = place in {"202", "204"} or not place.startswith("2")  # 202: a notification is taken
                assert place == "body" or empty or body["content"], (path, method)
                for type_, media in body.get("content", {}).items():
                    assert media["schema"], (path, method, place)
                    if "json" in type_:
                        check = jsonschema_rs.Draft202012Validator(anchored(media["schema"]), registry=registry)
                        faults = [str(iter_error) for iter_error in check.iter_errors(media["example"])]
                        assert faults == [], (path, method, place)
                        checked += 1
    assert checked > 200


def test_it_says_how_clients_are_authenticated(description: dict[str, Any]) -> None:
    assert description["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    assert description["security"] == [{"bearer": []}, {}]
    assert not [schema for schema in description["components"]["schemas"] if schema.endswith(("-Input", "-Output"))]


def test_the_page_of_it_needs_nothing_from_elsewhere(served: ApiStack) -> None:
    transport = httpx.HTTPTransport(uds=str(served.socket), verify=False)
    with httpx.Client(transport=transport, base_url="http://paddock", trust_env=False, timeout=60) as client:
        answer = client.get("/docs")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert 'id="createSandbox"' in answer.text
    examples = re.sub(r"https://api\.openai\.com/v1", "", answer.text)  # the text of an example, never a link
    assert not [entry for entry in ("<script", "src=", "http://", "https://", "@import") if entry in examples]
