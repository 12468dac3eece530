"""Images on the fake and on a real Docker Engine: pulled, built, pushed; ours are seen, and removed when unused.

The engine is the tests' own: it asks every container before it removes an image, and other daemons remove images, too.
"""

import contextlib
import io
import json
import random
import socket
import tarfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.kinds.common.labels import AGENT
from controller.kinds.planning.action import PullImage, RemoveContainer
from controller.kinds.planning.outcome import Ok, Outcome, Transient
from controller.kinds.runtime.agent import IMAGE, AgentRuntime, volume_name
from controller.kinds.runtime.images import BUILD_PIDS, OURS, HostImage, ImageBuild
from controller.policy.images import ImageRules
from controller.ports import ImageError, ImageWork
from controller.service.images.context import pack_files
from tests.contract.engine_hosts import DockerHand, EngineHost, docker_host, fake_host, ok
from tests.daemon import wait_for
from tests.fakes.engine import TINY
from tests.lab.engine import PrivateEngine, private_engine
from tests.lab.registry import Registry, a_registry

SECONDS = 60.0


@pytest.fixture(scope="module")
def engine() -> Iterator[PrivateEngine]:
    with private_engine() as private:
        yield private


@pytest.fixture(scope="module")
def registry(engine: PrivateEngine) -> Iterator[Registry]:
    """A registry on that engine's own loopback."""
    with a_registry(engine.namespaces.within(lambda: socket.create_server(("127.0.0.1", 0)))) as made:
        yield made


@pytest.fixture(params=["fake", pytest.param("docker", marks=pytest.mark.docker)])
def host(request: pytest.FixtureRequest) -> Iterator[EngineHost]:
    if request.param == "fake":
        with fake_host() as made:
            yield made.settled()
        return
    url, registry_host = request.getfixturevalue("engine").base_url, request.getfixturevalue("registry").host
    with docker_host(url, hand=DockerHand(url), images=ImageRules(local_registries=(registry_host,))) as made:
        yield made.settled()


@pytest.fixture
def remote(request: pytest.FixtureRequest, host: EngineHost) -> str:
    """A new name in a registry that the engine reaches."""
    real = isinstance(host.hand, DockerHand)
    registry_host = request.getfixturevalue("registry").host if real else "127.0.0.1:5000"
    return f"{registry_host}/team/{uuid.uuid4().hex[:12]}:1"


@pytest.fixture
def name() -> str:
    return f"paddock/test-{uuid.uuid4().hex[:12]}:1"


def seen(host: EngineHost, *ids: str) -> list[HostImage]:
    found = host.images.ours()
    assert found is not None
    return [each for each in found if each.id in ids]


def test_only_what_bears_our_label_is_ours(host: EngineHost, name: str) -> None:
    made = host.hand.build_image(name, ours=True)
    other = host.hand.build_image(name + "-other", ours=False)
    assert [(each.id, each.names) for each in seen(host, made, other)] == [(made, (name,))]
    assert host.images.remove(HostImage(other, (name + "-other",))) != ""


def test_what_a_newer_build_took_the_name_of_has_none(host: EngineHost, name: str) -> None:
    old, new = (host.hand.build_image(name, ours=True) for _ in range(2))
    superseded, current = sorted(seen(host, old, new), key=lambda each: each.names)
    assert (superseded, current.id, current.names) == (HostImage(old), new, (name,))
    assert host.images.remove(superseded) == ""
    assert [each.id for each in seen(host, old, new)] == [new]
    assert host.images.remove(superseded) == ""


def test_a_named_one_goes_with_its_name(host: EngineHost, name: str) -> None:
    made = host.hand.build_image(name, ours=True)
    (image,) = seen(host, made)
    assert host.images.remove(image) == ""
    assert seen(host, made) == []


def test_one_that_got_a_name_meanwhile_stays(host: EngineHost, name: str) -> None:
    made = host.hand.build_image(name, ours=True)
    assert "meanwhile" in host.images.remove(HostImage(made))
    assert [each.id for each in seen(host, made)] == [made]


def test_one_that_a_container_is_made_of_stays(host: EngineHost, name: str) -> None:
    made = host.hand.build_image(name, ours=True)
    host.made(host.new_uid(), image=name)
    (image,) = seen(host, made)
    assert host.images.remove(image) != ""
    assert [each.id for each in seen(host, made)] == [made]


def test_an_image_is_deleted_by_its_name(host: EngineHost, name: str) -> None:
    host.hand.build_image(name, ours=False)
    assert host.images.delete(name) == ""
    assert host.images.find(name) is None
    assert host.images.delete(name) == ""


def test_an_image_in_use_is_not_deleted(host: EngineHost, name: str) -> None:
    host.hand.build_image(name, ours=False)
    host.made(host.new_uid(), image=name)
    assert host.images.delete(name) != ""
    assert host.images.find(name) is not None


# The agents' runtimes

ON_DOCKER = pytest.mark.parametrize("host", [pytest.param("docker", marks=pytest.mark.docker)], indirect=True)


@pytest.fixture
def agents(host: EngineHost, name: str) -> Iterator[EngineHost]:
    """A host with an image for sandboxes, and none of agents."""
    host.hand.build_image(name, ours=True)
    yield host
    for each in host.images.agent_runtimes() or ():
        for box in (one for uid in host.engine.observe().containers for one in host.view(uid)):
            ok(host.engine.act(RemoveContainer(box.uid, box.name, box.id, "the test is over")))
        assert host.images.remove_agent_runtime(each) == ""


def agent_image(host: EngineHost) -> str:
    """Build the agent's image anew, and wait until the engine's facts say so."""
    made = host.hand.build_image(IMAGE, ours=True, path=".paddock/agent/agent.py")
    host.until(lambda: host.engine.observe().facts.agent == made)
    return made


def with_agent(host: EngineHost, image: str, agent: str) -> str:
    """Create a sandbox with an agent; the volume of its runtime."""
    return host.made(host.new_uid(), image=image, agent=agent).agent


def test_without_the_agents_image_it_waits(agents: EngineHost, name: str) -> None:
    uid = agents.new_uid()
    refused = agents.engine.act(agents.create(uid, image=name, agent=IMAGE))
    assert isinstance(refused, Transient)
    assert (refused.reason, "images/build.sh agent" in refused.message) == ("AgentImageMissing", True)
    assert agents.view(uid) == ()
    assert agents.made(uid, image=name).agent == ""


def test_sandboxes_share_the_runtime_of_their_agents_image(agents: EngineHost, name: str) -> None:
    image = agent_image(agents)
    assert {with_agent(agents, name, image), with_agent(agents, name, IMAGE)} == {volume_name(image)}
    (runtime,) = agents.images.agent_runtimes() or ()
    assert runtime == AgentRuntime(image, is_used=True)
    assert agents.images.remove_agent_runtime(runtime) != ""
    assert with_agent(agents, name, image) == volume_name(image)


def test_an_older_runtime_stays_while_it_is_mounted(agents: EngineHost, name: str) -> None:
    old = agent_image(agents)
    uid = agents.new_uid()
    first = agents.made(uid, image=name, agent=old)
    new = agent_image(agents)
    assert with_agent(agents, name, IMAGE) == volume_name(new)
    assert agents.only(uid).agent == volume_name(old)
    assert set(agents.images.agent_runtimes() or ()) == {
        AgentRuntime(old, is_used=True),
        AgentRuntime(new, is_used=True),
    }
    ok(agents.engine.act(RemoveContainer(uid, first.name, first.id, "a test")))
    assert agents.images.remove_agent_runtime(AgentRuntime(old)) == ""
    assert agents.images.agent_runtimes() == [AgentRuntime(new, is_used=True)]
    assert agents.images.remove_agent_runtime(AgentRuntime(old)) == ""


def test_a_runtime_serves_without_its_image(agents: EngineHost, name: str) -> None:
    image = agent_image(agents)
    with_agent(agents, name, image)
    agents.hand.remove_image(IMAGE)
    agents.until(lambda: agents.engine.observe().facts.agent == "")
    assert with_agent(agents, name, IMAGE) == volume_name(image)


@ON_DOCKER
def test_a_half_filled_runtime_is_filled_again(agents: EngineHost, name: str) -> None:
    image, hand = agent_image(agents), agents.hand
    assert isinstance(hand, DockerHand)
    hand.api.create_volume(volume_name(image), labels={AGENT: image})
    made = agents.made(agents.new_uid(), image=name, agent=image)
    stream, _ = hand.api.get_archive(made.id, "/.paddock/agent")
    with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as tree:
        assert "agent/agent.py" in tree.getnames()


@ON_DOCKER
def test_a_volume_of_somebody_else_is_left_alone(agents: EngineHost, name: str) -> None:
    image, hand = agent_image(agents), agents.hand
    assert isinstance(hand, DockerHand)
    hand.api.create_volume(volume_name(image))
    refused = agents.engine.act(agents.create(agents.new_uid(), image=name, agent=image))
    assert isinstance(refused, Transient)
    assert refused.reason == "NameConflict"
    assert agents.images.agent_runtimes() == []
    hand.api.remove_volume(volume_name(image))


def a_build(
    tag: str, *lines: str, base: str = TINY, seconds: float = SECONDS, content: bytes = b"content\n"
) -> ImageBuild:
    """A build as the use-case asks for it: with our label, and a file to copy."""
    text = "\n".join((f"FROM {base}", f'LABEL "{OURS}"="test"', *lines, ""))
    return ImageBuild(tag, pack_files({"a": content, "recipe": text.encode()}), "recipe", seconds=seconds)


def done(work: ImageWork) -> list[str]:
    """Its texts, read to its end."""
    with contextlib.closing(work):
        return [each.text for each in work]


def test_a_built_image_is_ours(host: EngineHost, name: str) -> None:
    assert host.images.find(name) is None
    assert any("COPY a /a" in each for each in done(host.images.build(a_build(name, "COPY a /a"))))
    made = host.images.find(name)
    assert made is not None
    assert name in {each for image in host.images.all() for each in image.names}
    assert seen(host, made.id) == [made]
    assert host.images.remove(HostImage(made.id, (name,))) == ""
    assert host.images.find(name) is None


def test_an_image_says_what_it_runs(host: EngineHost, name: str) -> None:
    lines = ('ENTRYPOINT ["serve", "--stdio"]', 'CMD ["all"]', "WORKDIR /srv", "VOLUME /data /cache")
    done(host.images.build(a_build(name, *lines)))
    made = host.images.find(name)
    assert made is not None
    assert (made.entrypoint, made.command, made.working_dir) == (("serve", "--stdio"), ("all",), "/srv")
    assert made.volumes == ("/cache", "/data")
    assert made.program() == ("serve", "--stdio", "all")
    assert made.program(("one",)) == ("serve", "--stdio", "one")
    assert host.images.remove(HostImage(made.id, (name,))) == ""


def test_a_broken_build_says_why(host: EngineHost, name: str) -> None:
    with pytest.raises(ImageError, match=f"the build of {name} failed: COPY failed"):
        done(host.images.build(a_build(name, "COPY missing /a")))
    with pytest.raises(ImageError, match="failed"):
        done(host.images.build(a_build(name, base=f"{name}-none")))
    assert host.images.find(name) is None


def test_a_pushed_image_can_be_pulled(host: EngineHost, remote: str) -> None:
    done(host.images.build(a_build(remote, "COPY a /a")))
    made = host.images.find(remote)
    assert made is not None
    # In the containerd image store the digest is known before any registry has it.
    assert made.digests in ((), (f"{remote.rpartition(':')[0]}@{made.id}",))
    done(host.images.push(remote, seconds=SECONDS))
    assert host.images.remove(HostImage(made.id, (remote,))) == ""
    assert host.images.find(remote) is None
    done(host.images.pull(remote, seconds=SECONDS))
    back = host.images.find(remote)
    assert back is not None
    assert back.id == made.id
    assert [each.partition("@")[0] for each in back.digests] == [remote.rpartition(":")[0]]
    assert host.images.remove(HostImage(made.id, (remote,))) == ""


def test_missing_images_are_neither_pulled_nor_pushed(host: EngineHost, remote: str) -> None:
    with pytest.raises(ImageError, match="the registry does not have it"):
        done(host.images.pull(remote, seconds=SECONDS))
    with pytest.raises(ImageError, match="is not on this host; build it, or pull it") as failed:
        done(host.images.push(remote, seconds=SECONDS))
    assert not failed.value.found


@pytest.mark.docker
def test_cancelling_a_build_kills_its_command(engine: PrivateEngine, name: str) -> None:
    with docker_host(engine.base_url, hand=DockerHand(engine.base_url)) as host:
        work = host.images.build(a_build(name, "RUN cat /proc/net/dev", "RUN sleep 3456"))

        def sleeps() -> bool:
            return "sleep 3456" in engine.docker("ps", "--no-trunc", "--format", "{{.Command}}")

        texts: list[str] = []
        failed: list[ImageError] = []

        def read() -> None:
            try:
                texts.extend(each.text for each in work)
            except ImageError as error:
                failed.append(error)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        wait_for("the command runs", sleeps)
        work.close()
        reader.join(60)
        assert [str(each) for each in failed] == [f"the build of {name} was cancelled"]
        assert sum(each.count("eth") for each in texts) == 0, "a build's command has no network"
        assert any("lo:" in each for each in texts)
        wait_for("the command is gone", lambda: not sleeps())


@pytest.mark.docker
def test_commands_of_builds_share_a_limit_of_processes(engine: PrivateEngine, name: str) -> None:
    with docker_host(engine.base_url, hand=DockerHand(engine.base_url)) as host:
        work = host.images.build(a_build(name, "RUN echo begun; sleep 3458"))
        texts = []
        for step in work:
            texts.append(step.text)
            if step.text == "begun":
                break

        def running() -> list[str]:
            listed = engine.docker("ps", "--no-trunc", "--format", "{{.ID}} {{.Command}}").splitlines()
            return [each.partition(" ")[0] for each in listed if "sleep 3458" in each]

        [id_] = wait_for("the engine lists it", running)  # its output may come before
        [inspected] = json.loads(engine.docker("inspect", id_))
        parent = inspected["HostConfig"]["CgroupParent"]
        groups = [line.split(":") for line in Path(f"/proc/{inspected['State']['Pid']}/cgroup").read_text().split()]
        work.close()
    assert not [each for each in texts if "not limited" in each]
    assert parent == "/paddock-builds"
    [(folder, path)] = [("pids" if each[1] else "", each[2]) for each in groups if each[1] in ("pids", "")][:1]
    assert path.startswith(f"{parent}/")
    assert (Path("/sys/fs/cgroup") / folder / "paddock-builds" / "pids.max").read_text() == f"{BUILD_PIDS}\n"


@pytest.mark.docker
def test_a_late_build_and_a_silent_registry_are_ended(engine: PrivateEngine, registry: Registry, name: str) -> None:
    remote = f"{registry.host}/team/{uuid.uuid4().hex[:12]}:1"
    listed = ImageRules(local_registries=(registry.host,))
    with docker_host(engine.base_url, hand=DockerHand(engine.base_url), images=listed) as host:
        with pytest.raises(ImageError, match="was not finished within 1 s"):
            done(host.images.build(a_build(name, "RUN sleep 3457", seconds=1.0)))
        done(host.images.build(a_build(remote, "COPY a /a")))
        registry.login = ("me", "secret")
        try:
            with pytest.raises(ImageError, match="the registry requires a login"):
                done(host.images.push(remote, seconds=SECONDS))
        finally:
            registry.login = None
        done(host.images.push(remote, seconds=SECONDS))
        made = host.images.find(remote)
        assert made is not None
        assert host.images.remove(HostImage(made.id, (remote,))) == ""
        registry.hold.clear()
        try:
            with pytest.raises(ImageError, match=r"the pull of .* was not finished within 2 s"):
                done(host.images.pull(remote, seconds=2.0))
        finally:
            registry.hold.set()


@pytest.mark.docker
def test_a_pull_for_a_sandbox_shows_its_bytes(engine: PrivateEngine, registry: Registry) -> None:
    remote = f"{registry.host}/team/{uuid.uuid4().hex[:12]}:1"
    listed = ImageRules(local_registries=(registry.host,))
    with docker_host(engine.base_url, hand=DockerHand(engine.base_url), images=listed) as host:
        done(host.images.build(a_build(remote, "COPY a /a", content=random.randbytes(8 << 20))))
        done(host.images.push(remote, seconds=SECONDS))
        made = host.images.find(remote)
        assert made is not None
        assert host.images.remove(HostImage(made.id, (remote,))) == ""
        registry.halves = True
        registry.hold.clear()
        outcomes: list[Outcome] = []
        pulling = threading.Thread(target=lambda: outcomes.append(host.engine.act(PullImage(remote, "a test"))))
        pulling.start()
        try:
            wait_for("half of it", lambda: [each for each in host.images.pulling() if each.current_bytes], 60)
            (found,) = host.images.pulling()
            assert found.image == remote
            assert 0 < found.current_bytes < found.total_bytes
            assert found.total_bytes > 8 << 20
        finally:
            registry.hold.set()
            pulling.join()
            registry.halves = False
        assert outcomes == [Ok()]
        assert list(host.images.pulling()) == []
