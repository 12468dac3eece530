"""MCP servers: commands, versions, trust levels, and the sandbox of a session. Names are those of the mission."""

from typing import Any

import pytest

from controller.documents.document import parse
from controller.kinds.access.access import AccessRequest, Caller, Grant
from controller.kinds.mcpserver import KIND, MCPServerSpec
from controller.kinds.registry import discover
from controller.kinds.sandbox import SandboxSpec
from controller.policy import sandbox
from controller.policy.access import decide, refusals
from controller.policy.images import ImageRules
from controller.policy.levels.levels import FULL_ISOLATION, Policy
from controller.policy.mcpserver import (
    admit,
    image_of,
    install_of,
    launch_of,
    not_installed,
    pool_documents,
    pool_name,
    runnable,
    session_sandbox,
)
from controller.policy.packages.install import install_status


def spec_of(**fields: Any) -> MCPServerSpec:
    return MCPServerSpec.model_validate({"command": "python3", **fields})


def refusal_texts(**fields: Any) -> list[str]:
    return [f"{refusal.field}: {refusal.message}" for refusal in admit(spec_of(**fields), Policy())]


@pytest.mark.parametrize(
    ("command", "image"),
    [
        ("node", "paddock/node:1"),
        ("npx", "paddock/node:1"),
        ("python", "paddock/python:1"),
        ("python3", "paddock/python:1"),
        ("uvx", "paddock/python:1"),
    ],
)
def test_image_by_command(command: str, image: str) -> None:
    assert image_of(spec_of(command=command)) == image


def test_generic_fallback_is_an_image_of_ones_own() -> None:
    assert refusal_texts(image="example.org/x:1", command="/opt/any program", args=["--flag"]) == []
    assert image_of(spec_of(image="example.org/x:1", command="npx")) == "example.org/x:1"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("no", "is not one of bun"),
        ("nodejs", "is not one of bun"),
        ("npx.cmd", "write `npx`"),
        ("/usr/bin/npx", "write `npx`"),
        ("C:\\node\\NPX.CMD", "is not one of"),
        ("python3 -m evil", "is not one of"),
    ],
)
def test_only_whole_words_are_commands(command: str, says: str) -> None:
    [message] = refusal_texts(command=command)
    assert message.startswith("spec.command: ")
    assert says in message


def test_an_empty_command_is_no_command() -> None:
    [message] = refusal_texts(command="")
    assert message.startswith("spec.command: names no program; write one (bun, bunx, ")


@pytest.mark.parametrize(
    ("command", "args", "says"),
    [
        ("npx", ["-y", "foo"], "`npx foo` names no version: write `foo@1.2.3`"),
        ("npx", ["@scope/foo"], "write `@scope/foo@1.2.3`"),
        ("npx", ["foo@latest"], "write an exact one, such as `foo@1.2.3`"),
        ("npx", ["foo@^1.2.3"], "may become another version"),
        ("uvx", ["foo"], "`uvx foo` names no version: write `foo==1.2.3`"),
        ("uvx", ["foo>=1"], "may become another version"),
        ("pipx", ["run", "foo"], "names no version"),
        ("npx", ["-y"], "names no package"),
        ("npx", ["--registry=https://evil.example.org", "foo@1.2.3"], "registries are the operator's"),
        ("npx", ["git+https://example.org/x"], "names no package of a registry"),
        ("bunx", ["foo@1.2.3"], "installed for Node.js alone; write `npx foo@1.2.3`"),
        ("deno", ["run", "npm:foo@1.2.3"], "installed for Node.js alone; write `npx foo@1.2.3`"),
        ("uv", ["run", "x.py"], "only `uv tool run` starts a package"),
    ],
)
def test_packages_need_a_version(command: str, args: list[str], says: str) -> None:
    [message] = refusal_texts(command=command, args=args)
    assert message.startswith("spec.args: ")
    assert says in message


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"registry": "npm", "name": "foo", "version": "^1.2.3"}, "spec.package: `npx foo@^1.2.3` may become another"),
        ({"registry": "pypi", "name": "../x", "version": "1"}, "spec.package: uvx: `../x==1` names no package"),
        ({"registry": "pypi", "name": "foo", "version": "1", "command": "a b"}, "`a b` is not a program's name"),
    ],
)
def test_a_package_is_exact_and_alone(fields: dict[str, str], says: str) -> None:
    remaining = {key: fields[key] for key in ("command", "image") if key in fields}
    [message] = refusal_texts(
        **{"command": "", **remaining}, package={k: v for k, v in fields.items() if k not in remaining}
    )
    assert says in message


def test_images_of_packages_are_within_the_operators_patterns() -> None:
    spec = spec_of(command="npx", args=["foo@1.2.3"])
    [refusal] = admit(spec, Policy(images=ImageRules(("registry.example/*",))))
    assert (refusal.field, "`paddock/mcp/foo:" in refusal.message) == ("spec.args", True)
    assert admit(spec, Policy(images=ImageRules(("paddock/*",)))) == ()


@pytest.mark.parametrize(
    ("command", "args"),
    [("npx", ["-y", "@scope/foo@1.2.3", "/workspace"]), ("uvx", ["foo==1.2"]), ("pipx", ["run", "foo==1"])],
)
def test_packages_with_a_version_run_once_installed(command: str, args: list[str]) -> None:
    spec = spec_of(command=command, args=args)
    assert refusal_texts(command=command, args=args) == []
    assert "is not installed yet" in not_installed(spec)
    assert not_installed(spec_of(command=command, args=args, image="example.org/x:1")) == ""
    plan = install_of(spec)
    assert plan is not None
    mcp_server_spec = runnable(
        spec, {"install": install_status(plan, (), ("node", "x.js"), "paddock/mcp/foo:1", "sha256:a")}
    )
    assert (not_installed(mcp_server_spec), image_of(mcp_server_spec), mcp_server_spec.command) == (
        "",
        "paddock/mcp/foo:1",
        "node",
    )
    assert mcp_server_spec.args[0] == "x.js"
    assert mcp_server_spec.args[1:] == (("/workspace",) if command == "npx" else ())
    document = {"install": {"plan": "another", "image": "paddock/mcp/foo:2", "program": ["x"]}}
    assert runnable(spec, document) == spec


def test_a_package_by_its_parts_is_that_of_the_command_line() -> None:
    parts = spec_of(command="", package={"registry": "npm", "name": "@a/b", "version": "1.2.3"}, args=["/workspace"])
    line = spec_of(command="npx", args=["-y", "@a/b@1.2.3", "/workspace"])
    assert install_of(parts) == install_of(line)
    assert admit(parts, Policy()) == ()
    assert launch_of(parts) == launch_of(line)


def test_a_package_may_name_the_image_below_it() -> None:
    package = {"registry": "pypi", "name": "mcp-server-git", "version": "2026.1.0"}
    spec = spec_of(command="", package=package, image="paddock/toolchain:1", args=["--repository", "/workspace"])
    plan, usual = install_of(spec), install_of(spec.model_copy(update={"image": None}))
    assert plan is not None
    assert usual is not None
    assert plan.dockerfile.startswith("FROM paddock/toolchain:1\n")
    assert plan.fetching == usual.fetching
    assert plan.key != usual.key
    assert "is not installed yet" in not_installed(spec)
    done = runnable(spec, {"install": install_status(plan, (), ("python3", "x.py"), "paddock/mcp/git:1", "sha256:a")})
    assert (not_installed(done), image_of(done), done.command) == ("", "paddock/mcp/git:1", "python3")
    assert done.args == ("x.py", "--repository", "/workspace")
    assert admit(spec, Policy()) == ()
    bounded = Policy(images=ImageRules(("paddock/mcp/*",)))
    assert [refusal.field for refusal in admit(spec, bounded)] == ["spec.image"]


def test_sandbox_enabled_false_is_refused_for_user_added() -> None:
    assert refusal_texts(sandbox="Preferred") == [
        "spec.sandbox: a user_added server never runs without a sandbox; remove it, or let an admin verify the server"
    ]
    assert refusal_texts(sandbox="Preferred", trust="verified") == []


def test_variables_that_load_code_are_refused() -> None:
    names = refusal_texts(
        env=[{"name": "LD_PRELOAD", "value": "x"}, {"name": "A"}],
        secrets=[{"name": "s", "env": "A"}, {"name": "t", "env": "NODE_OPTIONS"}],
    )
    assert [name.partition(":")[0] for name in names] == [
        "spec.env[0].name",
        "spec.secrets[0].env",
        "spec.secrets[1].env",
    ]


@pytest.mark.parametrize("name", ["docker", "sandbox", "mcp", "paddock"])
def test_prefixes_of_own_tools_are_no_names(name: str) -> None:
    assert "use another name" in KIND.is_built_in(name)


def rendered(**fields: Any) -> tuple[SandboxSpec, Any]:
    document = session_sandbox("s", spec_of(**fields), name="s-1", session="1")
    spec = SandboxSpec.model_validate(document["spec"])
    assert sandbox.admit(spec, Policy()) == ()
    assert spec.template is not None
    return spec, document


@pytest.mark.parametrize(
    ("fields", "holder"),
    [
        ({"image": "x.org/server:1", "command": ""}, {"agent": {}}),
        ({"image": "x.org/server:1", "command": "", "network": {"allowedHosts": ["a.example.org"]}}, {"agent": {}}),
        ({"image": "x.org/server:1", "command": "serve"}, {"command": ["sleep", "infinity"]}),
        ({"command": "python3"}, {"command": ["sleep", "infinity"]}),
    ],
)
def test_an_image_of_one_program_is_kept_running_by_the_agent(fields: Any, holder: Any) -> None:
    """Such an image need not even have a shell; with a command of its own, it has more than one program."""
    assert admit(spec_of(**fields), Policy()) == ()
    template = rendered(**fields)[1]["spec"]["template"]
    assert {name: template[name] for name in ("agent", "command") if name in template} == holder


@pytest.mark.parametrize(("trust", "limits"), [("user_added", ("512Mi", "500m", 50)), ("verified", ("1Gi", "1", 100))])
def test_limits_by_trust(trust: str, limits: tuple[str, str, int]) -> None:
    spec, document = rendered(trust=trust)
    observed = document["spec"]["template"]["resources"]["limits"]
    assert (observed["memory"], observed["cpu"], observed["pids"]) == limits
    assert spec.template is not None
    assert spec.template.security_level == "full-isolation"
    assert [(tmpfs_mount.mount_path, tmpfs_mount.size) for tmpfs_mount in spec.template.tmpfs] == [("/tmp", 100 << 20)]
    assert document["metadata"]["ownerReferences"] == [{"kind": "MCPServer", "name": "s"}]


def test_network_is_a_list_of_hosts() -> None:
    spec, _ = rendered(network={"allowedHosts": ["api.example.org"]})
    assert spec.network.allowed_hosts == ("api.example.org",)
    assert spec.template is not None
    security = spec.template.security
    assert security is not None
    assert (security.capabilities, security.read_only_root_filesystem, security.no_new_privileges) == ((), True, True)


def test_a_verified_server_may_reach_all_hosts() -> None:
    sent = {"trust": "verified", "network": {"allowedHosts": ["*"]}}
    assert refusal_texts(**sent) == []
    spec, document = rendered(**sent)
    assert "network" not in document["spec"]
    assert spec.template is not None
    config = sandbox.render(spec, spec.template, name="s-1", uid="0123456789ab", policy=Policy()).config
    assert spec.template.security_level == "production"
    assert (config.capabilities, config.read_only_root, config.seccomp) == ((), True, FULL_ISOLATION.seccomp)
    assert int(config.user.partition(":")[0]) >= 10_000


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"network": {"allowedHosts": ["*"]}}, "`*` is for verified servers"),
        ({"trust": "verified", "network": {"allowedHosts": ["*", "a.example.org"]}}, "leave out the others"),
        ({"trust": "verified", "network": {"allowedHosts": ["*"]}, "warmReplicas": 1}, "leave out warmReplicas"),
    ],
)
def test_all_hosts_are_for_verified_servers(fields: dict[str, Any], says: str) -> None:
    [message] = refusal_texts(**fields)
    assert says in message


def test_all_hosts_are_refused_without_the_firewall() -> None:
    spec = spec_of(trust="verified", network={"allowedHosts": ["*"]})
    assert [refusal.message for refusal in admit(spec, Policy(unguarded="no firewall"))] == ["no firewall"]


def test_program_and_secrets_are_not_in_the_sandbox_spec() -> None:
    _, document = rendered(
        args=["-c", "private"], env=[{"name": "A", "value": "b"}], secrets=[{"name": "s", "env": "T"}]
    )
    assert document["spec"]["template"]["command"] == ["sleep", "infinity"]
    assert "private" not in str(document)
    assert "secrets" not in document["spec"]["template"]


def test_verified_needs_an_admin_and_use_a_user() -> None:
    def beyond(role: Any) -> list[str]:
        caller = Caller("ann", "test", (Grant(role=role, namespaces=("default",)),))
        return [refusal.field for refusal in refusals(caller, KIND, spec_of(trust="verified"), "default", Policy())]

    assert beyond("operator") == ["spec.trust"]
    assert beyond("admin") == []
    for role, permitted in (("viewer", False), ("user", True)):
        caller = Caller("ann", "test", (Grant(role=role, namespaces=("default",)),))
        for verb in ("use", "get"):
            ask = AccessRequest(verb, KIND.name, "default", "s", "mcp")
            assert decide(caller, ask).allowed is permitted
        assert not decide(caller, AccessRequest("update", KIND.name, "default", "s")).allowed


def test_a_folder_to_start_in_is_that_of_the_sandbox() -> None:
    spec = spec_of(workingDir="/home/ann")
    assert session_sandbox("s", spec, name="s-1", session="1")["spec"]["template"]["workingDir"] == "/home/ann"
    assert "workingDir" not in session_sandbox("s", spec_of(), name="s-1", session="1")["spec"]["template"]
    assert "spec.workingDir: `/proc/self` belongs to the kernel" in refusal_texts(workingDir="/proc/self")[0]


def test_limits_are_lowered_and_never_raised() -> None:
    low = spec_of(limits={"memory": "128Mi", "pids": 20})
    limits = session_sandbox("one", low, name="one-1", session="1")["spec"]["template"]["resources"]["limits"]
    assert limits == {"memory": "128Mi", "cpu": "500m", "pids": 20}
    assert refusal_texts(limits={"memory": "128Mi", "cpu": "500m", "pids": 50}) == []
    assert refusal_texts(limits={"memory": "1Gi", "cpu": 1, "pids": 51}) == [
        "spec.limits.memory: 1Gi is more than user_added servers may have; at most 512Mi",
        "spec.limits.cpu: 1 is more than user_added servers may have; at most 500m",
        "spec.limits.pids: 51 is more than user_added servers may have; at most 50",
    ]


@pytest.mark.parametrize("memory", ["32Mi", "64Mi", "100Mi", "128Mi", "300Mi", "512Mi"])
def test_every_lower_limit_leaves_room_for_the_folders(memory: str) -> None:
    spec = session_sandbox("one", spec_of(limits={"memory": memory}), name="one-1", session="1")["spec"]
    parsed = SandboxSpec.model_validate(spec)
    assert not sandbox.admit(parsed, Policy())
    if memory == "512Mi":
        assert spec == session_sandbox("one", spec_of(), name="one-1", session="1")["spec"]


def test_warm_sandboxes_are_those_of_sessions() -> None:
    warm = spec_of(warmReplicas=3, limits={"memory": "64Mi"})
    template, pool = pool_documents("one", warm)
    cold = session_sandbox("one", warm, name="one-1", session="1")["spec"]
    assert template["spec"] == cold["template"]
    assert pool["spec"]["templateRef"] == {"name": template["metadata"]["name"]} == {"name": "mcp-one"}
    pooled = session_sandbox("one", warm, name="one-1", session="1", pooled=True)["spec"]
    assert pooled == {"templateRef": {"name": "mcp-one"}, **{key: cold[key] for key in cold if key != "template"}}
    assert pool_documents("one", spec_of()) == pool_documents("one", spec_of(warmReplicas=1, enabled=False)) == ()
    assert len(pool_name("a" * 52)) <= 52
    assert pool_name("a" * 52) != pool_name("a" * 51 + "b")
    assert "leave out warmReplicas" in refusal_texts(warmReplicas=1, network={"allowedHosts": ["example.org"]})[0]


def test_a_start_takes_30_s_a_call_300_s_and_tmp_100_mib() -> None:
    spec = spec_of()
    assert (spec.startup_seconds, spec.call_seconds) == (30, 300)
    template = session_sandbox("one", spec, name="one-1", session="1")["spec"]["template"]
    assert template["tmpfs"] == [{"mountPath": "/tmp", "size": "100Mi"}]


def test_builtin_is_no_trust_of_a_server() -> None:
    """Only Paddock's own tools, which run in its process, are builtin: those run without a sandbox."""
    text = '{"apiVersion":"paddock/v1alpha1","kind":"MCPServer","metadata":{"name":"a"},'
    problems = parse("f", text + '"spec":{"command":"python3","trust":"builtin"}}', discover())[1]
    assert [problem.field for problem in problems] == ["spec.trust"]
