"""What kubectl asks of a server besides the kinds: OpenAPI, dry runs, reviews of access, sandboxes as pods."""

import json
from typing import Any

import httpx
import pytest

from controller.api.common.paths import ACCESS_REVIEW, KUBERNETES_PROTOBUF, RULES_REVIEW, SELF_REVIEW
from controller.api.kubernetes import protobuf
from controller.api.kubernetes.openapi import openapi_v2, openapi_v3
from controller.kinds.registry import discover
from tests.helpers_api import QUICKSTART, ApiStack

GVK = "x-kubernetes-group-version-kind"
SANDBOX = {"group": "paddock", "version": "v1alpha1", "kind": "Sandbox"}
SANDBOXES = "/apis/paddock/v1alpha1/namespaces/default/sandboxes"
YAML = {"Content-Type": "application/yaml"}


@pytest.fixture
def http(served: ApiStack) -> Any:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(served.socket)), base_url="http://paddock") as client:
        yield client


@pytest.mark.parametrize("document", [openapi_v2(discover()), openapi_v3(discover())], ids=["v2", "v3"])
def test_openapi_says_what_a_patch_takes(document: dict[str, Any]) -> None:
    operation = document["paths"]["/apis/paddock/v1alpha1/namespaces/{namespace}/sandboxes/{name}"]["patch"]
    assert operation[GVK] == SANDBOX
    assert {parameter["name"] for parameter in operation["parameters"]} >= {"dryRun", "fieldValidation"}
    schemas = document.get("definitions") or document["components"]["schemas"]
    schema = schemas["paddock.v1alpha1.Sandbox"]
    assert schema[GVK] == [SANDBOX]
    template = schema["properties"]["spec"]["properties"]["template"]["properties"]
    assert template["livenessProbe"] == template["liveness"]
    assert (
        "type"
        not in schema["properties"]["spec"]["properties"]["resources"]["properties"]["limits"]["properties"]["cpu"]
    )


def test_openapi_types_are_those_of_kubectl() -> None:
    def types(schema: Any) -> set[str]:
        inner = [*schema.get("properties", {}).values(), *filter(None, (schema.get("items"),))]
        return {schema.get("type", ""), *(name for piece in inner for name in types(piece))}

    for schema in openapi_v2(discover())["definitions"].values():
        assert types(schema) <= {"", "object", "array", "string", "integer", "number", "boolean"}


def test_openapi_in_protocol_buffers(http: httpx.Client) -> None:
    answer = http.get("/openapi/v2", headers={"Accept": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"})
    assert answer.headers["content-type"] == protobuf.OPENAPI_V2
    document = protobuf.fields(answer.content)
    assert document[1] == b"2.0"
    assert protobuf.fields(document[2])[1] == b"Paddock"
    assert b"paddock.v1alpha1.Sandbox" in document[9]
    assert http.get("/openapi/v2").json()["swagger"] == "2.0"
    (path,) = http.get("/openapi/v3").json()["paths"].values()
    assert http.get(path["serverRelativeURL"]).json()["openapi"] == "3.0.0"


def test_dry_runs_write_nothing(http: httpx.Client, served: ApiStack) -> None:
    dry = {"dryRun": "All"}
    assert http.post(SANDBOXES, content=QUICKSTART, headers=YAML, params=dry).status_code == 201
    assert http.get(SANDBOXES).json()["items"] == []
    served.apply()
    before = http.get(f"{SANDBOXES}/quickstart").json()
    changed = json.loads(json.dumps(before)) | {"spec": before["spec"] | {"priority": 7}}
    assert http.put(f"{SANDBOXES}/quickstart", json=changed, params=dry).json()["spec"]["priority"] == 7
    for deleted in (f"{SANDBOXES}/quickstart", SANDBOXES):
        assert http.delete(deleted, params=dry).status_code == 200
        body = json.dumps({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]})
        sent = http.request("DELETE", deleted, content=body, headers={"Content-Type": "application/json"})
        assert sent.status_code == 200
    assert http.get(f"{SANDBOXES}/quickstart").json() == before


def _review(**attributes: str) -> dict[str, Any]:
    return {"spec": {"resourceAttributes": attributes}}


@pytest.mark.parametrize(
    ("attributes", "allowed"),
    [
        ({"verb": "create", "group": "paddock", "resource": "sandboxes", "namespace": "default"}, True),
        ({"verb": "watch", "resource": "pods"}, True),
        ({"verb": "get", "resource": "pods", "subresource": "log"}, True),
        ({"verb": "*", "resource": "sandboxes"}, True),
        ({"verb": "get", "resource": "deployments"}, False),
        ({"verb": "escalate", "resource": "sandboxes"}, False),
    ],
)
def test_access_is_reviewed(http: httpx.Client, attributes: dict[str, str], allowed: bool) -> None:
    answer = http.post(ACCESS_REVIEW, json=_review(**attributes))
    assert (answer.status_code, answer.json()["status"]["allowed"]) == (201, allowed)


def test_a_review_in_protocol_buffers(http: httpx.Client) -> None:
    attributes = protobuf._text(2, "get") + protobuf._text(5, "deployments")
    review = protobuf._message(2, protobuf._message(1, attributes))
    envelope = b"k8s\x00" + protobuf._message(1, protobuf._text(1, "v1")) + protobuf._message(2, review)
    headers = {"Content-Type": KUBERNETES_PROTOBUF}
    answer = http.post(ACCESS_REVIEW, content=envelope, headers=headers)
    assert "no kind is called `deployments`" in answer.json()["status"]["reason"]
    assert http.post(ACCESS_REVIEW, content=envelope[:-3], headers=headers).status_code == 400
    assert http.post(SANDBOXES, content=envelope, headers=headers).status_code == 415
    assert http.post(ACCESS_REVIEW, content=envelope + bytes(16 << 10), headers=headers).status_code == 413


def test_the_caller_and_its_rules(http: httpx.Client) -> None:
    assert http.post(SELF_REVIEW, json={}).json()["status"]["userInfo"]["username"]
    rules = http.post(RULES_REVIEW, json={"spec": {"namespace": "default"}}).json()["status"]["resourceRules"]
    assert ["sandboxes"] in [rule["resources"] for rule in rules]


def test_sandboxes_are_pods(http: httpx.Client, served: ApiStack) -> None:
    served.apply()
    served.view.show(served.sandbox())
    served.set_ready()
    pods = "/api/v1/namespaces/default/pods"
    assert {resource["name"] for resource in http.get("/api/v1").json()["resources"]} == {
        "pods",
        "pods/exec",
        "pods/log",
    }
    pod = http.get(f"{pods}/quickstart").json()
    assert (pod["kind"], pod["status"]["phase"], pod["spec"]["containers"][0]["name"]) == ("Pod", "Running", "sandbox")
    listed = http.get("/api/v1/pods", params={"labelSelector": "app=demo", "limit": 500}).json()
    assert [item["metadata"]["name"] for item in listed["items"]] == ["quickstart"]
    table = http.get(pods, headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}).json()
    assert table["rows"][0]["cells"][:2] == ["quickstart", "True"]
    assert http.get(f"{pods}/none").status_code == 404
    assert "write sandboxes" in http.get(pods, params={"watch": "true"}).json()["message"]
    assert "`template` of a Sandbox" in http.post(pods, json={}).json()["message"]


def test_the_log_of_a_pod_is_its_sandbox_s(http: httpx.Client, served: ApiStack) -> None:
    served.apply()
    served.view.show(served.sandbox())
    log = "/api/v1/namespaces/default/pods/quickstart/log"
    query = {"container": "sandbox", "tailLines": "3", "sinceTime": "2020-01-01T00:00:00Z"}
    assert http.get(log, params=query).text == "hello\n"
    options = served.streams.asked[-1][1]
    assert (options["tail"], options["since"] is not None) == (3, True)
    assert http.get(log, params={"sinceTime": "soon"}).status_code == 400
    message = http.post(f"{log[:-3]}exec", params={"command": "ls"}).json()["message"]
    assert "since version 1.30" in message
    for sub, advice in (("attach", "paddock logs -f quickstart"), ("portforward", "paddock port-forward quickstart")):
        assert advice in http.post(f"{log[:-3]}{sub}").json()["message"]
