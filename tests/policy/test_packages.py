"""Command lines that start packages, their install as a plan, and locks that are checked, not trusted."""

import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from controller.kinds.runtime.package_hosts import Registries
from controller.kinds.sandbox import SandboxSpec
from controller.policy import sandbox
from controller.policy.build.dockerfile import find_problems, read_dockerfile
from controller.policy.images import ImageRules, is_own
from controller.policy.levels.levels import Policy
from controller.policy.packages.install import (
    FETCHED,
    Locked,
    failure,
    install_sandbox,
    npm_command,
    plan_install,
    pypi_command,
    read_lock,
)
from controller.policy.packages.launch import Launch, LaunchError, Package, parse_launch, runtime_of

FOO, SCOPED = Package("npm", "foo", "1.2.3"), Package("npm", "@a/server-b", "2026.8.31")
BAR = Package("pypi", "bar", "1.2")
HASH = "a" * 64
INTEGRITY = "sha512-" + "A" * 86 + "=="


def parsed(line: str) -> Launch:
    command, *arguments = line.split(" ")
    return parse_launch(command, arguments)


@pytest.mark.parametrize(
    ("line", "packages", "program", "arguments"),
    [
        ("npx foo@1.2.3", [FOO], "", []),
        ("/usr/bin/npx -y @a/server-b@2026.8.31 /workspace -y", [SCOPED], "", ["/workspace", "-y"]),
        ("npx --yes --package=foo@1.2.3 -p @a/server-b@2026.8.31 tool --flag", [FOO, SCOPED], "tool", ["--flag"]),
        ("npx -p foo@1.2.3 -- tool x", [FOO], "tool", ["x"]),
        ("npm exec -- foo@1.2.3 x", [FOO], "", ["x"]),
        ("npx foo@1.0.0-rc.1+b", [Package("npm", "foo", "1.0.0-rc.1+b")], "", []),
        ("uvx bar==1.2 --port 1", [BAR], "", ["--port", "1"]),
        ("uvx bar@1.2", [BAR], "", []),
        ("uvx -q bar[x,a]==1.2", [Package("pypi", "bar", "1.2", ("a", "x"))], "", []),
        ("uvx --from bar==1.2 --with foo==1!2.0rc1 tool a", [BAR, Package("pypi", "foo", "1!2.0rc1")], "tool", ["a"]),
        ("uv tool run bar==1.2", [BAR], "", []),
        ("pipx run bar==1.2 x", [BAR], "", ["x"]),
        ("pipx run --spec bar==1.2 tool x", [BAR], "tool", ["x"]),
        ("bunx foo@1.2.3", [FOO], "", []),
        ("bun x --bun foo@1.2.3", [FOO], "", []),
        ("deno run --allow-net npm:foo@1.2.3 x", [FOO], "", ["x"]),
        ("deno run main.ts", [], "deno", ["run", "main.ts"]),
        ("python3 -m bar", [], "python3", ["-m", "bar"]),
        ("/opt/node/bin/node server.js", [], "node", ["server.js"]),
    ],
)
def test_a_command_line_names_its_packages(
    line: str, packages: list[Package], program: str, arguments: list[str]
) -> None:
    launch = parsed(line)
    assert (list(launch.packages), launch.program, list(launch.arguments)) == (packages, program, arguments)


@pytest.mark.parametrize(
    ("line", "message_part"),
    [
        ("npx foo", "`npx foo` names no version: write `foo@1.2.3`"),
        ("npx -y @a/b", "`npx @a/b` names no version: write `@a/b@1.2.3`"),
        ("uvx bar", "`uvx bar` names no version: write `bar==1.2.3`"),
        ("pipx run bar", "`pipx run bar` names no version: write `bar==1.2.3`"),
        *(
            (f"npx foo@{entry}", "may become another version")
            for entry in ("latest", "^1.2.3", "1", "1.x", "*", "v1.2.3")
        ),
        *((f"uvx bar{entry}", "may become another version") for entry in (">=1", "~=1.2", "==1.*", "@latest", "==")),
        *(
            (f"npx {entry}", "names no package of a registry")
            for entry in ("./x", "github:a/b", "git+https://a/b", "a/b")
        ),
        *(
            (f"npx {entry}", "names no package of a registry")
            for entry in ("https://a/b.tgz", "file:x@1.2.3", "Foo@1.2.3")
        ),
        *(
            (f"uvx {entry}", "names no package of a registry")
            for entry in ("./x", "git+https://a/b", "bar@https://a/b")
        ),
        ("npx", "`npx` names no package"),
        ("npx -y", "`npx` names no package"),
        ("npx -p", "npx -p: names no package"),
        ("npx -c foo", "npx -c: `--call` hides what it starts"),
        ("npx --registry=http://a foo@1.2.3", "npx --registry: registries are the operator's"),
        ("npx --loglevel=silly foo@1.2.3", "npx --loglevel: this option is not supported"),
        ("npx -p foo@1.2.3 ../tool", "`../tool` is not a program's name"),
        ("uvx --index-url http://a bar==1.2", "registries are the operator's"),
        ("uvx --python 3.12 bar==1.2", "the image has the Python"),
        ("uvx --with-requirements r.txt bar==1.2", "files are not read"),
        ("uv run main.py", "only `uv tool run` starts a package"),
        ("pipx install bar==1.2", "only `pipx run` starts a package"),
        ("npm install foo@1.2.3", "only `npm exec` starts a package"),
        ("deno run https://a/b.ts", "names no package of a registry"),
        ("deno run npm:foo", "names no version"),
        ("npx.cmd foo@1.2.3", "is a wrapper of Windows; write `npx`"),
        ("NPX.EXE foo@1.2.3", "is a wrapper of Windows; write `npx`"),
        ("bash -c ls", "hides what it starts"),
        ("docker run x", "can't be run in a sandbox; write the image as `image:`"),
        *(
            (entry, "is not a known command")
            for entry in ("no", "nod", "npxx", "xnpx", "python3.9", "node-gyp", "Npx", "rm")
        ),
        ("", "names no command"),
        ("/usr/bin/", "names no command"),
    ],
)
def test_a_bad_command_line_is_refused_in_words(line: str, message_part: str) -> None:
    with pytest.raises(LaunchError) as refused_:
        parsed(line)
    assert message_part in str(refused_.value)


@given(st.text(alphabet="npxuvbode/. -@3", max_size=8))
def test_a_runtime_is_known_by_a_whole_word(command: str) -> None:
    arguments = {"node", "npx", "npm", "python", "python3", "uvx", "uv", "pipx", "bun", "bunx", "deno"}
    assert (runtime_of(command) is not None) == (command.rsplit("/", maxsplit=1)[-1] in arguments)


@given(st.lists(st.text(max_size=12), max_size=4), st.sampled_from(("npx", "uvx", "pipx", "bunx", "deno", "npm", "uv")))
def test_whatever_is_accepted_has_exact_versions(arguments: list[str], command: str) -> None:
    try:
        launch = parse_launch(command, arguments)
    except LaunchError:
        return
    for package in launch.packages:
        assert package.version[0].isdigit()
        assert parse_launch("npx" if package.source == "npm" else "uvx", [str(package)]).packages == (package,)


@pytest.mark.parametrize("line", ["npx -y @a/server-b@2026.8.31 /workspace", "uvx bar==1.2"])
def test_an_install_runs_nothing_of_the_package(line: str) -> None:
    plan = plan_install(parsed(line))
    assert plan is not None
    arguments = [word for command in plan.commands for word in command]
    assert {"--ignore-scripts", "--only-binary=:all:"} & set(arguments)
    assert plan.commands[1][-2] == "--", "a package is never an option"
    assert plan.level == "build"
    assert plan.lock.startswith(FETCHED)
    recipe, problems = read_dockerfile("D", plan.dockerfile)
    assert not problems
    assert not find_problems(recipe, ImageRules(("paddock/*",)), "copy"), "it needs no RUN"
    tag = plan.tag_of([], "one")
    assert is_own(tag), "no registry may fill it"
    assert tag != plan.tag_of([Locked("dependency", "1", HASH)], "one"), "what was resolved is part of its name"


def test_the_tag_is_of_the_packages_alone() -> None:
    install, install_plan, second = (plan_install(parsed(f"npx foo@1.2.{entry}")) for entry in ("3 a", "3 b", "4"))
    assert install is not None
    assert install_plan is not None
    assert second is not None
    assert install.key == install_plan.key != second.key
    assert plan_install(parsed("npx foo@1.2.3"), Registries(npm="http://r.example/")).key == install.key  # type: ignore[union-attr]
    assert plan_install(parsed("python3 -m bar")) is None
    with pytest.raises(LaunchError, match=r"installed for Node.js alone; write `npx foo@1\.2\.3`"):
        plan_install(parsed("bunx foo@1.2.3"))
    with pytest.raises(LaunchError, match="names `foo` twice"):
        plan_install(parsed("npx -p foo@1.2.3 -p foo@1.2.4 x"))


@pytest.mark.parametrize(
    ("line", "bin_", "path"),
    [
        ("npx @a/server-b@2026.8.31 x", "dist/index.js", "@a/server-b/dist/index.js"),
        ("npx foo@1.2.3 x", {"other": "./o.js"}, "foo/o.js"),
        ("npx foo@1.2.3 x", {"foo": "f.js", "other": "o.js"}, "foo/f.js"),
        ("npx -p foo@1.2.3 other x", {"foo": "f.js", "other": "../../../o.js"}, "foo/o.js"),
    ],
)
def test_the_program_is_the_one_that_npx_chooses(line: str, bin_: Any, path: str) -> None:
    assert npm_command(parsed(line), {"bin": bin_}) == ("node", f"/opt/server/node_modules/{path}")


def test_a_program_that_is_not_there_is_refused() -> None:
    for bin_ in (None, {"a": "a.js", "b": "b.js"}, ["foo"]):
        with pytest.raises(LaunchError, match="has no program `foo`"):
            npm_command(parsed("npx foo@1.2.3"), {"bin": bin_})
    points = "[console_scripts]\nbar-x = bar.main:cli.run [extra]\nbad = os;system:x\n[gui_scripts]\ng = a:b\n"
    assert pypi_command(parsed("uvx --from bar==1.2 bar_x y"), points)[2:] == (
        "import sys; from bar.main import cli; sys.argv[0] = 'bar_x'; sys.exit(cli.run())",
    )
    for name in ("bar", "bad", "g"):
        with pytest.raises(LaunchError, match=f"has no program `{name}` \\(bar-x\\)"):
            pypi_command(parsed(f"uvx --from bar==1.2 {name}"), points)


def test_the_fetching_sandbox_is_admitted_and_has_no_secrets() -> None:
    plan = plan_install(parsed("uvx bar==1.2"), Registries(pypi="http://packages.example:8080/simple"))
    assert plan is not None
    document = install_sandbox(plan, name="install-bar", disk_bytes=1 << 30)
    spec = SandboxSpec.model_validate(document["spec"])
    assert sandbox.admit(spec, Policy()) == ()
    assert spec.template is not None
    assert (spec.template.secrets, spec.template.security_level) == ((), "build")
    assert plan.env["PIP_TRUSTED_HOST"] == "packages.example:8080"
    npm = plan_install(parsed("npx foo@1.2.3"), Registries(npm="https://packages.example/npm/"))
    assert npm is not None
    assert npm.env["npm_config_registry"] == "https://packages.example/npm/"


@pytest.mark.parametrize(
    ("line", "stdout", "finding", "message_part"),
    [
        ("npx foo@1.2.3", '{"error": {"code": "E404", "summary": "x"}}', "", "the registry does not have it"),
        ("npx foo@1.2.3", 'noise\n{"error": {"code": "ETARGET"}}', "", "the registry does not have it"),
        ("npx foo@1.2.3", '{"error": {"code": "ENOSPC"}}', "", "needs more disk than 1Gi (setting package_install_"),
        ("npx foo@1.2.3", '{"error": {"code": "ECONNREFUSED"}}', "", "the registry can't be reached"),
        *(("npx foo@1.2.3", text, "", "npm ended with exit code 1") for text in ("", "{", "[]", '{"error": 1}')),
        ("uvx bar==1.2", "", "source-only\n", "publishes no wheel"),
        ("uvx bar==1.2", "", "absent", "the registry does not have it"),
        ("uvx bar==1.2", "", "other", "pip ended with exit code 1; it has 1Gi of disk"),
    ],
)
def test_a_failed_fetch_is_explained_by_data(line: str, stdout: str, finding: str, message_part: str) -> None:
    plan = plan_install(parsed(line))
    assert plan is not None
    assert message_part in failure(plan, 1, stdout, finding, 1 << 30)


def npm_lock(**change: Any) -> str:
    package = {"version": "1.2.3", "resolved": "https://r/foo.tgz", "integrity": INTEGRITY, **change}
    return json.dumps({"packages": {"": {}, "node_modules/foo": {k: v for k, v in package.items() if v is not None}}})


def pip_report(url: str = "https://r/bar-1.2-py3-none-any.whl", digest: str = HASH, version: str = "1.2") -> str:
    info = {"url": url, "archive_info": {"hashes": {"sha256": digest}}}
    return json.dumps({"install": [{"metadata": {"name": "Bar", "version": version}, "download_info": info}]})


def test_a_lock_lists_files_with_hashes() -> None:
    assert read_lock("npm", npm_lock(), [FOO]) == (Locked("foo", "1.2.3", INTEGRITY),)
    assert read_lock("npm", npm_lock(resolved=None), [FOO])
    bundled = json.loads(npm_lock())
    bundled["packages"]["node_modules/foo/node_modules/part"] = {"version": "1.0.0", "inBundle": True}
    assert len(read_lock("npm", json.dumps(bundled), [FOO])) == 1, "it is in the file of another"
    assert read_lock("pypi", pip_report(), [BAR]) == (Locked("Bar", "1.2", f"sha256:{HASH}"),)


@pytest.mark.parametrize(
    ("source", "text", "message_part"),
    [
        ("npm", npm_lock(resolved="git+ssh://a/b"), "foo is no file of the registry"),
        ("npm", npm_lock(integrity=None), "foo is no file of the registry"),
        ("npm", npm_lock(link=True), "foo is no file of the registry"),
        ("npm", npm_lock(version="1.2.4"), "foo@1.2.3 was asked for, and 1.2.4 was installed"),
        ("npm", '{"packages": {}}', "and nothing was installed"),
        ("pypi", pip_report(url="https://r/bar-1.2.tar.gz"), "Bar 1.2 is not a wheel"),
        ("pypi", pip_report(digest=""), "Bar 1.2 has no hash"),
        ("pypi", pip_report(version="1.3"), "bar==1.2 was asked for, and 1.3 was installed"),
        *(
            (entry, text, "left no lock that can be read")
            for entry in ("npm", "pypi")
            for text in ("", "[]", "{", '{"a": 1}')
        ),
    ],
)
def test_a_lock_of_anything_else_is_refused(source: Any, text: str, message_part: str) -> None:
    with pytest.raises(LaunchError) as refused_:
        read_lock(source, text, [FOO if source == "npm" else BAR])
    assert message_part in str(refused_.value)
