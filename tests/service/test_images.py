"""Images: who may list, pull, build and push which; and how the work ends."""

import gc
from collections.abc import Mapping

import pytest

from controller.kinds.access.access import Caller, Grant
from controller.kinds.registry import discover
from controller.kinds.runtime.images import OURS
from controller.policy.images import ImageRules
from controller.ports import ImageError, ImageWork
from controller.service import errors
from controller.service.access.access import acting
from controller.service.images.context import Context, pack_files
from controller.service.images.images import AT_ONCE, BuildRequest, ImageService, ImageTask, ImageWorkRules
from tests.fakes.images import FakeImages
from tests.helpers_api import ApiStack

BASE, TOOL = "paddock/base:1", "registry.example/team/tool:1"
ALLOWED = ImageRules(("paddock/*", "registry.example/team/*"))
RULES = ImageWorkRules("run", context_bytes=1 << 16, image_bytes=1 << 20, push_registries=("registry.example",))
ADMIN = Caller("root", grants=(Grant(role="admin"),))
USER = Caller("ci", grants=(Grant(role="user", namespaces=("default",)),))
NARROW = Caller("narrow", grants=(Grant(role="user", namespaces=("a",), images=("paddock/*",)),))


@pytest.fixture
def images() -> FakeImages:
    return FakeImages({BASE: "sha256:" + "b" * 64, "other/thing:1": "sha256:" + "c" * 64}, set)


def service(api: ApiStack, images: FakeImages, work: ImageWorkRules = RULES) -> ImageService:
    return ImageService(images, ALLOWED, work, api.services.recorder, discover())


def done(task: ImageTask) -> list[str]:
    return [image_progress.text for image_progress in task]


def a_build(text: str, tag: str = "team/tool:1", files: Mapping[str, bytes] | None = None) -> BuildRequest:
    return BuildRequest(tag, pack_files({"a": b"x", **(files or {})}), dockerfile=text)


def test_everyone_sees_what_they_may_use(api: ApiStack, images: FakeImages) -> None:
    images.remote[TOOL] = "sha256:" + "d" * 64
    image_service = service(api, images)
    with acting(USER):
        done(image_service.pull(TOOL))
        assert [host_image.names for host_image in image_service.list()] == [(BASE,), (TOOL,)]
    with acting(NARROW):
        assert [host_image.names for host_image in image_service.list()] == [(BASE,)]
    with acting(Caller("nobody")):
        assert image_service.list() == []
    images.away = True
    with pytest.raises(errors.ServiceUnavailable, match="no Docker Engine answers"):
        image_service.list()


def test_pulls_are_within_the_patterns_of_operator_and_grant(api: ApiStack, images: FakeImages) -> None:
    image_service = service(api, images)
    with acting(USER), pytest.raises(errors.Invalid, match="is not an image that this host's operator allows"):
        image_service.pull("evil/image:1")
    with acting(USER), pytest.raises(errors.Invalid, match="is not an image's name"):
        image_service.pull("../x")
    viewer = Caller("viewer", grants=(Grant(role="viewer"),))
    for caller in (NARROW, viewer):
        with acting(caller) as refusal, pytest.raises(errors.Forbidden, match="with this image among its images"):
            image_service.pull(TOOL)
        assert [ask.sub for ask, _ in refusal] == ["images/pull"]
    assert images.opened == []
    with acting(USER), pytest.raises(errors.ServiceUnavailable, match="the registry does not have it"):
        done(image_service.pull(TOOL))


def test_a_registry_answers_operators_alone(api: ApiStack) -> None:
    class Inside(FakeImages):
        def pull(self, name: str, *, seconds: float) -> ImageWork:
            raise ImageError(f"{name}: no image came", detail="it is at 10.0.0.7")

    image_service = service(api, Inside({}, set))
    for caller, message in ((USER, "no image came"), (ADMIN, "no image came (it is at 10.0.0.7)")):
        with acting(caller), pytest.raises(errors.ServiceUnavailable) as refusal:
            done(image_service.pull(TOOL))
        assert str(refusal.value) == f"{TOOL}: {message}"


def test_no_pull_replaces_what_was_built_here(api: ApiStack, images: FakeImages) -> None:
    built = "registry.example/team/built:1"
    images.remote |= dict.fromkeys((BASE, built, TOOL), "sha256:" + "e" * 64)
    image_service = service(api, images)
    with acting(ADMIN):
        done(image_service.build(a_build(f"FROM {BASE}\n", tag=built)))
        before = images.find(built), images.find(BASE)
        with pytest.raises(errors.Conflict, match="came from no registry, and a pull would replace it"):
            done(image_service.pull(built))
        for name in (BASE, "docker.io/paddock/egress:1", "index.docker.io/paddock/x"):
            with pytest.raises(errors.Invalid):
                image_service.pull(name)
        assert (images.find(built), images.find(BASE)) == before
        done(image_service.pull(TOOL))
        done(image_service.pull(TOOL))
        done(image_service.push(built))
        done(image_service.pull(built))


def test_a_build_copies_onto_an_allowed_base(api: ApiStack, images: FakeImages) -> None:
    image_service = service(api, images)
    with acting(ADMIN):
        task = image_service.build(a_build(f"FROM {BASE}\nCOPY a /a\nRUN make\n"))
        assert any("RUN make" in name for name in done(task))
    assert task.image is not None
    assert task.image.names == ("team/tool:1",)
    (image_build,) = images.asked
    assert images.built == {task.image.id: True}, f"every stage has the label {OURS}"
    assert image_build.seconds == RULES.build_seconds
    (entry,) = api.services.audit.entries()
    assert (entry.actor, entry.verb, entry.name, entry.detail) == ("root", "images/build", "team/tool:1", {})


@pytest.mark.parametrize(
    ("text", "work", "said"),
    [
        (f"FROM {BASE}\nRUN make\n", "copy", "Dockerfile:2:1: RUN: the operator allows no commands in builds"),
        ("FROM evil/image\n", "run", "Dockerfile:1:1: FROM: `evil/image` is not an image"),
        (f"FROM {BASE}\nCOPY --from=evil/x /a /b\n", "run", "Dockerfile:2:1: COPY: `evil/x` is not an image"),
        (f"FROM {BASE}\nADD http://10.0.0.1/ /a\n", "run", "ADD: may fetch from a network"),
        ("ARG B\nFROM $B\n", "run", "FROM: a variable could name any image"),
        ("", "run", "Dockerfile: is empty"),
    ],
)
def test_a_dockerfile_is_refused_with_positions(
    api: ApiStack, images: FakeImages, text: str, work: str, said: str
) -> None:
    image_service = service(api, images, ImageWorkRules(work))  # type: ignore[arg-type]
    with acting(ADMIN), pytest.raises(errors.Invalid) as refusal:
        image_service.build(a_build(text))
    assert said in str(refusal.value)
    assert images.opened == []


def test_tags_of_paddocks_own_are_refused(api: ApiStack, images: FakeImages) -> None:
    with acting(ADMIN), pytest.raises(errors.Invalid, match="one of Paddock's own names"):
        service(api, images).build(a_build(f"FROM {BASE}\n", tag="docker.io/paddock/egress:1"))


def test_builds_and_pushes_need_an_admin_and_a_setting(api: ApiStack, images: FakeImages) -> None:
    image_service, off = service(api, images), service(api, images, ImageWorkRules())
    for caller in (USER, Caller("op", grants=(Grant(role="operator"),))):
        with acting(caller):
            with pytest.raises(errors.Forbidden):
                image_service.build(a_build(f"FROM {BASE}\n"))
            with pytest.raises(errors.Forbidden):
                image_service.push(TOOL)
    with acting(ADMIN):
        with pytest.raises(errors.Forbidden, match="setting image_build"):
            off.build(a_build(f"FROM {BASE}\n"))
        with pytest.raises(errors.Forbidden, match="setting push_registries: none"):
            off.push(TOOL)
        with pytest.raises(errors.Forbidden, match=r"no pushes to docker\.io"):
            image_service.push("team/tool:1")
        with pytest.raises(errors.NotFound, match="is not on this host"):
            done(image_service.push(TOOL))
    assert images.remote == {}


def test_bases_are_pulled_and_their_triggers_refused(api: ApiStack, images: FakeImages) -> None:
    images.remote[TOOL] = "sha256:" + "d" * 64
    image_service = service(api, images)
    with acting(ADMIN):
        assert f"pulling {TOOL}" in done(image_service.build(a_build(f"FROM {TOOL}\n")))
        with pytest.raises(errors.Invalid, match="`paddock/other:1` is not on this host; no image of Paddock"):
            done(image_service.build(a_build("FROM paddock/other:1\n")))
        images.triggers.add(TOOL)
        with pytest.raises(errors.Invalid, match=r"Dockerfile:1:1: FROM: .* has ONBUILD instructions"):
            done(image_service.build(a_build(f"FROM {TOOL}\n")))


def test_an_image_over_the_limit_is_removed(api: ApiStack, images: FakeImages) -> None:
    images.sizes["team/tool:1"] = 3 << 20
    image_service = service(api, images)
    with acting(ADMIN), pytest.raises(errors.Invalid, match="the image has 3Mi, more than 1Mi"):
        done(image_service.build(a_build(f"FROM {BASE}\n")))
    assert images.find("team/tool:1") is None


def test_contexts_are_bounded_and_stay_inside(api: ApiStack, images: FakeImages) -> None:
    image_service = service(api, images)
    with acting(ADMIN):
        with pytest.raises(errors.TooLarge, match="larger than 64Ki"):
            image_service.build(a_build(f"FROM {BASE}\n", files={"big": b"x" * (1 << 16)}))
        with pytest.raises(errors.BadRequest, match="leads out of the folder"):
            image_service.build(a_build(f"FROM {BASE}\n", files={"../x": b""}))
        with pytest.raises(errors.BadRequest, match="not a tar archive"):
            image_service.build(BuildRequest("a:1", b"x" * 512))
        with pytest.raises(errors.BadRequest, match="has no file `Dockerfile`"):
            image_service.build(BuildRequest("a:1", pack_files({})))


def test_the_digest_is_of_everything_built() -> None:
    context, two = (Context(pack_files({"a": entry}), 1 << 20) for entry in (b"1", b"2"))
    assert context.digest("FROM x") != two.digest("FROM x")
    assert context.digest("FROM x") != context.digest("FROM y")


def test_the_work_at_once_is_bounded_and_freed(api: ApiStack, images: FakeImages) -> None:
    images.remote[TOOL] = "sha256:" + "d" * 64
    image_service = service(api, images)
    with acting(USER):
        tasks = [image_service.pull(TOOL) for _ in range(AT_ONCE)]
        with pytest.raises(errors.TooManyRequests):
            image_service.pull(TOOL)
        next(tasks[0])
        tasks[0].close()
        with pytest.raises(errors.ServiceUnavailable, match="was cancelled"):
            next(tasks[0])
        assert all(fake_work.closed for fake_work in images.opened)
        done(tasks[1])
        tasks[2].close()
        for _ in range(3):
            done(image_service.pull(TOOL))
        del tasks
        gc.collect()
        gc.freeze()  # what there is already is not looked at again and again
        for _ in range(AT_ONCE + 1):
            image_service.pull(TOOL)
            gc.collect()


def test_fetched_files_are_built_as_they_come(api: ApiStack, images: FakeImages) -> None:
    image_service, archive = service(api, images), pack_files({"server/a.js": b"x" * 100_000})
    pieces = iter([archive[at : at + 700] for at in range(0, len(archive), 700)])
    tag = "paddock/mcp/a:1"
    task = image_service.build_fetched(tag, f"FROM {BASE}\nCOPY server /opt/server\n", pieces, "mark")
    done(task)
    assert task.image is not None
    assert image_service.ids_by_name()[tag] == task.image.id
    assert [our.id for our in images.ours() or ()] == [task.image.id]
    with pytest.raises(errors.Invalid, match="allows no commands in builds"):
        image_service.build_fetched(tag, f"FROM {BASE}\nRUN x\n", iter(()), "mark")


@pytest.mark.parametrize(
    ("archive", "error", "says"),
    [
        (pack_files({"server/a": b"x"})[:600], errors.BadRequest, "the files can't be used: "),
        (pack_files({"../a": b"x"}), errors.BadRequest, "the files can't be used: "),
        (pack_files({"a": bytes(2 << 20)}), errors.TooLarge, "more than 1Mi"),
    ],
)
def test_bad_files_end_their_build(
    api: ApiStack, images: FakeImages, archive: bytes, error: type[Exception], says: str
) -> None:
    image_service = service(api, images)
    with pytest.raises(error, match=says):
        done(image_service.build_fetched("paddock/mcp/a:1", f"FROM {BASE}\nCOPY a /a\n", iter([archive]), "mark"))
    assert "paddock/mcp/a:1" not in image_service.ids_by_name()
