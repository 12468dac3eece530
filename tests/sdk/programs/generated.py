"""The client that openapi-python-client generated: create, read, run a command, delete."""

import sys
import threading

import httpx

sys.path.insert(0, sys.argv[1])
from generated import Client
from generated.api.sandbox import create_sandbox, delete_sandbox, exec_sandbox, read_sandbox
from generated.models import ExecRequest, ExecResult, Sandbox, SandboxWritten

client = Client(base_url="http://paddock", raise_on_unexpected_status=True)
client.set_httpx_client(httpx.Client(base_url="http://paddock", transport=httpx.HTTPTransport(uds=sys.argv[2])))
document = {
    "apiVersion": "paddock/v1alpha1",
    "kind": "Sandbox",
    "metadata": {"name": "generated"},
    "spec": {"template": {"image": "paddock/python:1", "command": ["sleep", "infinity"]}},
}
made = create_sandbox.sync(namespace="default", client=client, body=SandboxWritten.from_dict(document))
assert isinstance(made, Sandbox), made
assert made.metadata.name == "generated"
request = ExecRequest(command=["python3", "-c", "print(6 * 7)"])
while True:  # the daemon refuses commands until it runs
    found = read_sandbox.sync(namespace="default", name="generated", client=client)
    assert isinstance(found, Sandbox), found
    conditions = found.status.conditions if found.status else ()  # unset before the first reconcile pass
    if any(condition.type_ == "Ready" and condition.status == "True" for condition in conditions or ()):
        break
    threading.Event().wait(0.1)
done = exec_sandbox.sync(namespace="default", name="generated", client=client, body=request)
assert isinstance(done, ExecResult), done
assert (done.exit_code, done.stdout) == (0, "42\n")
assert isinstance(delete_sandbox.sync(namespace="default", name="generated", client=client), Sandbox)
