"""`paddock secret`, `paddock models` and `paddock config provider`."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from controller.cli.main import cli
from controller.engine.mounts.authority import Authority
from controller.engine.mounts.secrets import SecretFolder
from controller.gateway.bindings import Bindings, bindings_file
from controller.kinds.meta import StoredObject
from controller.kinds.runtime.secret import ProviderKey, SecretNotFound, SecretRef
from controller.service.exec.secrets import secret_text
from controller.service.models.keys import provider_key
from tests.helpers_api import ApiStack

Run = Callable[..., Result]
KEY = "sk-canary-77aa"
LIMITED = """
apiVersion: paddock/v1alpha1
kind: Provider
metadata: {name: limited}
spec: {type: OpenAI, url: "https://api.example.org", limits: {tokensPerDay: 1000}}
"""


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PADDOCK_SECRETS_DIR", str(tmp_path / "secrets"))
    monkeypatch.setenv("PADDOCK_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "secrets"


def secret(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["secret", *words], input=stdin)


def test_a_secret_is_set_listed_and_deleted(secrets: Path) -> None:
    done = secret("set", "anthropic-key", "--host", "api.anthropic.com", stdin=f"{KEY}\n")
    assert (done.exit_code, done.output) == (0, "secret anthropic-key of namespace default set, for providers\n")
    file = secrets / "default.models" / "anthropic-key"
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == (f"{KEY}\n", 0o600)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (secrets, file.parent)] == [0o700, 0o700]
    assert "changed" in secret("set", "anthropic-key", "--from-file", "-", stdin="other").output
    (secrets.parent / "token").write_text("npm\n")
    token = str(secrets.parent / "token")
    assert secret("set", "npm", "-n", "team", "--for", "sandboxes", "--from-file", token).exit_code == 0
    listed = secret("list", "-A").output
    assert [line.split()[:3] for line in listed.splitlines()[1:]] == [
        ["default", "anthropic-key", "providers"],
        ["team", "npm", "sandboxes"],
    ]
    assert [line.split()[4] for line in listed.splitlines()[1:]] == ["api.anthropic.com:443", "-"]
    assert "other" not in listed
    assert secret("delete", "anthropic-key").exit_code == 0
    assert not list(file.parent.iterdir())
    assert "there is no secret" in secret("delete", "anthropic-key").output


@pytest.mark.parametrize("value", [b"key\n", b"key", b"a\r\nb\n\n", bytes(range(256)) + b"\n", b"\n key \n"])
def test_a_secret_keeps_every_byte(secrets: Path, value: bytes) -> None:
    file = secrets.parent / "id_ed25519"
    file.write_bytes(value)
    for way, stdin in ((["--from-file", str(file)], b""), (["--from-file", "-"], value), ([], value)):
        done = CliRunner().invoke(cli, ["secret", "set", "ssh", "--for", "sandboxes", *way], input=stdin)
        assert done.exit_code == 0, done.output
        assert SecretFolder(secrets).read("default", "ssh") == value


def test_a_provider_has_its_key_without_the_line_break(secrets: Path) -> None:
    assert secret("set", "key", "--host", "api.example.org", stdin=f"{KEY}\r\n").exit_code == 0
    assert provider_key(SecretFolder(secrets), lambda *_: (), "default", "key").value == KEY
    assert secret_text(SecretFolder(secrets), "default.models", SecretRef("key")) == KEY


def test_bad_secrets_are_refused(secrets: Path) -> None:
    assert secret("set", "key", stdin="").exit_code != 0
    assert "is empty" in secret("set", "key", "--for", "providers", stdin="\r\n").output
    assert "add --host" in secret("set", "key", "--for", "providers", stdin="x").output
    assert "add --for providers, --for sandboxes or --for HOST" in secret("set", "key", stdin="x").output
    assert "--host is for keys of providers" in secret("set", "key", "--for", "a.org", "--host", "a", stdin="x").output
    for host in ("https://a.org", "a.org/v1", "a.org:99999", "*", ""):
        assert "not a valid HOST" in secret("set", "key", "--host", host, stdin="x").output, host
    for name in ("../key", "Key", ".key", "a/b"):
        assert secret("set", name, stdin="x").exit_code != 0, name
    assert secret("set", "key", "-n", "..", stdin="x").exit_code != 0
    assert secret("set", "key", "sk-as-an-argument").exit_code == 2
    assert not secrets.exists()
    secrets.mkdir(mode=0o777)
    secrets.chmod(0o777)
    assert "writable for others" in secret("set", "key", "--host", "a.org", stdin="x").output


def test_a_key_is_bound_to_hosts(secrets: Path) -> None:
    def hosts() -> tuple[str, ...] | None:
        return provider_key(SecretFolder(secrets), lambda *_: (), "default", "key").hosts

    assert "not found" in secret("bind", "key", "--host", "a.example.org").output
    secret("set", "key", "--host", "a.example.org", "--host", "B.example.org:8443", stdin=KEY)
    assert hosts() == ("a.example.org:443", "b.example.org:8443")
    secret("set", "key", stdin="rotated")
    assert hosts() == ("a.example.org:443", "b.example.org:8443")
    assert "bound to c.example.org:443" in secret("bind", "key", "--host", "c.example.org").output
    assert hosts() == ("c.example.org:443",)


def test_keys_of_before_are_bound_to_their_providers(secrets: Path, tmp_path: Path) -> None:
    folder = SecretFolder(secrets)
    folder.write("default.models", "key", KEY.encode())
    spec = {"type": "OpenAI", "url": "https://api.example.org/v1", "secretRef": {"name": "key"}}
    stored = StoredObject("Provider", "default", "used", "u", spec)
    stolen = StoredObject("Provider", "default", "stolen", "s", {**spec, "url": "https://evil.example.org"})
    bindings = Bindings(bindings_file(tmp_path / "state"))
    assert bindings.hosts("default", "key") == ()
    bindings.bind_used([stored])
    bindings.bind_used([stored, stolen])
    again = Bindings(bindings_file(tmp_path / "state"))
    again.bind_used([stolen])
    for group in (bindings, again):
        assert provider_key(folder, group.hosts, "default", "key").hosts == ("api.example.org:443",)
    assert "api.example.org:443" in secret("list").output


def test_keys_of_providers_come_before_those_of_sandboxes(secrets: Path) -> None:
    folder = SecretFolder(secrets)

    def key() -> ProviderKey:
        return provider_key(folder, lambda *_: (), "default", "key")

    with pytest.raises(SecretNotFound, match="paddock secret set key --host HOST -n default"):
        key()
    folder.write("default", "key", b"of-sandboxes\n")
    assert key() == ProviderKey("of-sandboxes", None)
    folder.write("default.models", "key", KEY.encode())
    assert key() == ProviderKey(KEY, ())
    assert KEY not in repr(key())


def test_a_used_up_day_is_named(paddock: Run, served: ApiStack) -> None:
    served.apply(LIMITED)
    obj = served.store.get("Provider", "default", "limited")
    assert obj is not None
    day = int(served.clock.now() // 86_400)
    for tokens, output in ((999, "Unknown Pending"), (1000, "False BudgetUsed its 1000 tokens of this day (UTC)")):
        served.services.model_use.budgets = lambda tokens=tokens: {obj.uid: {"day": day, "tokens": tokens}}  # type: ignore[misc]
        [_, row] = paddock("models").output.splitlines()
        assert " ".join(row.split()[2:]).startswith(output)


def test_providers_are_added_and_listed(paddock: Run, tmp_path: Path) -> None:
    assert (
        paddock("models").output
        == "No providers and no model servers found; add one with `paddock config provider add`.\n"
    )
    done = paddock("config", "provider", "add", "openai", "--type", "OpenAI", "--secret", "key", "--model", "gpt-*")
    assert done.output == "provider.paddock/openai created\n"
    [_, row] = paddock("models").output.splitlines()
    assert row.split()[:3] == ["gpt-*", "provider/openai", "Unknown"]
    assert "https://api.openai.com/v1" in paddock("get", "providers").output
    authority = tmp_path / "authority.pem"
    own_texts = ("config", "provider", "add", "own", "--type", "openai", "--endpoint", "https://llm.example.org/v1")
    authority.write_bytes(Authority(tmp_path).certificate())
    assert paddock(*own_texts, "--ca-file", str(authority)).output == "provider.paddock/own created\n"
    assert "BEGIN CERTIFICATE" in paddock("get", "provider", "own", "-o", "yaml").output
    assert paddock("config", "provider", "remove", "own").exit_code == 0
    assert paddock("config", "provider", "remove", "openai").exit_code == 0
    assert "No providers" in paddock("models").output


def test_the_type_docker_is_the_gateway_itself(paddock: Run) -> None:
    arguments = ("config", "provider", "add", "docker-llm", "--type", "docker", "--endpoint")
    nothing = paddock(*arguments, "http://localhost:8090")
    assert nothing.exit_code == 0
    assert "docker-llm: serves no model yet; namespace default has no ModelServer" in nothing.output
    assert "http://127.0.0.1:8090/default/v1" in nothing.output
    output = paddock(*arguments, "http://localhost:9999")
    assert (output.exit_code, "own gateway" in output.output) == (1, True)


def test_the_type_docker_says_what_is_served(paddock: Run, served: ApiStack) -> None:
    arguments = ("config", "provider", "add", "docker-llm", "--type", "docker")
    spec = {"template": {"image": "x"}, "port": 8080}
    for name, status, reason in (("llama", "True", "Ready"), ("loading", "False", "SandboxNotReady")):
        ready = {"conditions": [{"type": "Ready", "status": status, "reason": reason, "message": ""}]}
        with served.store.transaction() as transaction:
            transaction.put(StoredObject("ModelServer", "default", name, f"uid-{name}", spec, status=ready))
    done = paddock(*arguments)
    assert "docker-llm: serves llama; not ready: loading (SandboxNotReady); see `paddock models`" in done.output
