"""Pulls, builds and pushes of images: one mechanism for every endpoint, and for installs."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog
from pydantic import TypeAdapter, ValidationError

from controller.kinds.access.access import AccessRequest
from controller.kinds.common.problem import Problem
from controller.kinds.common.quantity import format_bytes
from controller.kinds.registry import Registry
from controller.kinds.runtime.agent import AgentRuntime
from controller.kinds.runtime.images import HostImage, ImageBuild, ImageProgress, ImagePull
from controller.kinds.sandbox import ImageName
from controller.policy import images as rules
from controller.policy.access import may_use_image
from controller.policy.build.dockerfile import (
    Allowed,
    Recipe,
    find_problems,
    labelled,
    read_dockerfile,
    tag_refused,
    with_tag,
)
from controller.policy.images import ImageRules, registry_of
from controller.ports import ImageError, Images, ImageWork
from controller.service import errors
from controller.service.access import access
from controller.service.access.audit import Recorder
from controller.service.images.context import DOCKERFILE, Context, streamed

TRANSFER_SECONDS = 3600.0  # of a pull or a push
AT_ONCE = 4
_DEFAULT_REGISTRY = "docker.io"
_NAME: TypeAdapter[str] = TypeAdapter(ImageName)
_OFF = "the operator allows no image builds (setting image_build); build it on another host and pull it"
_log = structlog.get_logger("paddock.images")


@dataclass(frozen=True, slots=True)
class ImageWorkRules:
    """The operator's settings for builds and pushes."""

    build: Allowed = "off"
    build_seconds: float = 600.0
    context_bytes: int = 64 << 20
    image_bytes: int = 2 << 30
    push_registries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """A build. `context` is a tar archive; the Dockerfile is its `path`, or the text `dockerfile` in its place."""

    tag: str
    context: bytes = field(repr=False)
    dockerfile: str | None = None
    path: str = "Dockerfile"
    arguments: Mapping[str, str] = field(default_factory=dict, repr=False)


class NoImages:
    """ports.Images of a host without any."""

    def all(self) -> Sequence[HostImage]:
        return ()

    def find(self, _name: str) -> HostImage | None:
        return None

    def pull(self, name: str, *, seconds: float) -> ImageWork:  # noqa: ARG002 - the port's
        raise ImageError(f"{name}: this daemon has no engine")

    def pulling(self) -> Sequence[ImagePull]:
        return ()

    def build(self, ask: ImageBuild) -> ImageWork:
        raise ImageError(f"{ask.tag}: this daemon has no engine")

    def push(self, name: str, *, seconds: float) -> ImageWork:  # noqa: ARG002 - the port's
        raise ImageError(f"{name}: this daemon has no engine")

    def ours(self) -> Sequence[HostImage] | None:
        return None

    def remove(self, _image: HostImage) -> str:
        return "this daemon has no engine"

    def delete(self, _name: str) -> str:
        return "this daemon has no engine"

    def agent_runtimes(self) -> Sequence[AgentRuntime] | None:
        return None

    def remove_agent_runtime(self, _runtime: AgentRuntime) -> str:
        return "this daemon has no engine"


class ImageTask:
    """A pull, build or push. Iterate it to its end; `image` is its result then. It raises ServiceErrors.

    `detailed`: they say what only operators may know, such as a registry's answer.

    `close`, from any thread, ends it: the engine stops the work, too.
    """

    def __init__(
        self,
        steps: "Callable[[ImageTask], Iterator[ImageProgress]]",
        *,
        failure: type[errors.ServiceError],
        detailed: bool = True,
    ) -> None:
        self.image: HostImage | None = None
        self._lock, self._closed = threading.Lock(), False
        self._release: Callable[[], None] = lambda: None
        self._current: ImageWork | None = None
        self._steps, self._failure, self._detailed = steps(self), failure, detailed

    def __del__(self) -> None:
        self._free()  # of a task that nobody took, as its request was cancelled meanwhile

    def __iter__(self) -> Iterator[ImageProgress]:
        return self

    def __next__(self) -> ImageProgress:
        try:
            return next(self._steps)
        except BaseException as error:
            self._free()
            if isinstance(error, ImageError):
                message = f"{error} ({error.detail})" if error.detail and self._detailed else str(error)
                raise (self._failure if error.found else errors.NotFound)(message) from error
            raise

    def close(self) -> None:
        with self._lock:
            self._closed, current = True, self._current
        if current is not None:
            current.close()
        self._free()

    def run(self, start: Callable[[], ImageWork]) -> Iterator[ImageProgress]:
        """Start one piece of work, and yield its progress."""
        work = start()
        with self._lock:
            self._current, closed = work, self._closed
        if closed:
            work.close()
        try:
            yield from work
        finally:
            work.close()

    def holding(self, release: Callable[[], None]) -> "ImageTask":
        """Return this task, which calls `release` once at its end."""
        self._release = release
        return self

    def _free(self) -> None:
        with self._lock:
            release, self._release = self._release, lambda: None
        release()


class ImageService:
    """The use-cases, for the caller of the current request (service.access.access.acting)."""

    def __init__(
        self, images: Images, image_rules: ImageRules, work: ImageWorkRules, recorder: Recorder, registry: Registry
    ) -> None:
        self._images, self._allowed, self._work = images, image_rules, work
        self._recorder, self._registry = recorder, registry
        # A task may be collected, and free its place, in the middle of taking another.
        self._lock, self._open = threading.RLock(), 0

    @property
    def context_bytes(self) -> int:
        """Largest size of a build's context."""
        return self._work.context_bytes

    def list(self) -> Sequence[HostImage]:
        """Return the images that the caller may use, by name; of each only the names that they may use."""
        try:
            images = self._images.all()
        except ImageError as error:
            raise errors.ServiceUnavailable(str(error)) from error
        usable_images = (replace(image, names=self._usable_names(image)) for image in images)
        return sorted((image for image in usable_images if image.names), key=lambda image: image.names)

    def get(self, name: str) -> HostImage:
        """Return the image of that name, with what it runs. Raises NotFound, also for one the caller may not use."""
        try:
            image = self._images.find(name) if self._is_usable(name) else None
        except ImageError as error:
            raise errors.ServiceUnavailable(str(error)) from error
        if image is None:
            message = f"image `{name}` is not on this host, or you may not use it"
            raise errors.NotFound(f"{message}; `paddock image list` shows those that you may")
        return replace(image, names=self._usable_names(image))

    def pulling(self) -> Sequence[ImagePull]:
        """Return the pulls in progress, for sandboxes, of images that the caller may use. It never waits."""
        asking = access.caller()
        pulls = (pull for pull in self._images.pulling() if not self._image_refusals(pull.image))
        return sorted(
            (pull for pull in pulls if asking is None or may_use_image(asking, pull.image)), key=lambda one: one.image
        )

    def pull(self, name: str) -> ImageTask:
        """Start a pull. Raises Invalid for an image beyond the operator's patterns, Forbidden beyond the caller's."""
        problems = self._image_refusals(name)
        if problems:
            raise errors.invalid([Problem.of_request("image", message) for message in problems])
        if rules.is_own(name):
            message = f"`{name}` is one of Paddock's own names, which is never pulled; {rules.remedy(name)}"
            raise errors.invalid([Problem.of_request("image", message)])
        asking = access.caller()
        ask = AccessRequest("use", name=name, sub="images/pull")
        if asking is not None and not may_use_image(asking, name, role="user"):
            message = f"{asking.name} may not pull `{name}`; it needs the role user, with this image among its images"
            access.note(ask, message)
            raise errors.Forbidden(message)

        def steps(task: ImageTask) -> Iterator[ImageProgress]:
            local_image = self._images.find(name)
            if local_image is not None and rules.would_replace(name, local_image.digests):
                message = "is on this host and came from no registry, and a pull would replace it; choose another name"
                raise errors.Conflict(f"{name} {message}, or remove it first (`docker rmi {name}`)")
            yield from task.run(lambda: self._images.pull(name, seconds=TRANSFER_SECONDS))
            task.image = self._images.find(name)

        detailed = asking is None or may_use_image(asking, name, role="operator")
        return self._start_task(ask, ImageTask(steps, failure=errors.ServiceUnavailable, detailed=detailed))

    def build(self, request: BuildRequest) -> ImageTask:
        """Start a build, for admins. Raises Invalid with every problem of the Dockerfile and its position."""
        ask = AccessRequest("admin", name=request.tag, sub="images/build")
        access.require(ask, self._registry)
        if self._work.build == "off":
            raise errors.Forbidden(_OFF)
        context = Context(request.context, self._work.context_bytes)
        text = context.text(request.path) if request.dockerfile is None else request.dockerfile
        if text is None:
            raise errors.BadRequest(
                f"the context has no file `{request.path}`; name the Dockerfile with -f (dockerfile)"
            )
        recipe, problems = read_dockerfile(request.path, text)
        problems += find_problems(recipe, self._allowed, self._work.build)
        if message := tag_refused(request.tag):
            problems.append(Problem.of_request("tag", message))
        if problems:
            raise errors.invalid(problems)
        labelled_text = labelled(recipe, context.digest(text))
        build = ImageBuild(
            tag=with_tag(request.tag),
            context=context.pack(labelled_text),
            dockerfile=DOCKERFILE,
            arguments=request.arguments,
            seconds=self._work.build_seconds,
        )
        task = ImageTask(lambda task: self._build_steps(task, recipe, build), failure=errors.Invalid)
        return self._start_task(ask, task)

    def build_fetched(self, tag: str, dockerfile: str, files: Iterator[bytes], mark: str) -> ImageTask:
        """Start the build of an image of files that Paddock fetched itself: it copies them, and runs nothing.

        `files` is a tar archive in pieces, `mark` the value of its label. Raises Invalid.
        """
        recipe, problems = read_dockerfile("Dockerfile", dockerfile)
        problems += find_problems(recipe, self._allowed, "copy")
        if problems:
            raise errors.invalid(problems)
        build = ImageBuild(
            tag=tag,
            context=streamed(files, labelled(recipe, mark), self._work.image_bytes),
            dockerfile=DOCKERFILE,
            seconds=self._work.build_seconds,
        )
        task = ImageTask(lambda task: self._build_steps(task, recipe, build), failure=errors.Invalid)
        return self._start_task(AccessRequest("admin", name=tag, sub="images/build"), task)

    def ids_by_name(self) -> Mapping[str, str]:
        """Return the ids of the host's images by name. Raises ServiceUnavailable."""
        try:
            return {name: image.id for image in self._images.all() for name in image.names}
        except ImageError as error:
            raise errors.ServiceUnavailable(str(error)) from error

    def has(self, name: str) -> bool:
        """Return True if the host has an image of that name; False if nobody can tell."""
        try:
            return self._images.find(name) is not None
        except ImageError:
            return False

    def _build_steps(self, task: ImageTask, recipe: Recipe, build: ImageBuild) -> Iterator[ImageProgress]:
        for base, line in recipe.bases.items():
            base_image = self._images.find(base)
            if base_image is None and rules.is_own(base):
                message = f"`{base}` is not on this host; {rules.remedy(base)}"
                raise errors.invalid([Problem(recipe.file, line, 1, "FROM", message)])
            if base_image is None:
                yield ImageProgress(f"pulling {base}")
                yield from task.run(lambda base=base: self._images.pull(base, seconds=TRANSFER_SECONDS))  # type: ignore[misc]
                base_image = self._images.find(base)
            if base_image is not None and base_image.triggers:
                message = "has ONBUILD instructions, which would be carried out unread; use another base"
                raise errors.invalid([Problem(recipe.file, line, 1, "FROM", f"`{base}` {message}")])
        yield from task.run(lambda: self._images.build(build))
        image = self._images.find(build.tag)
        if image is not None and image.size_bytes > self._work.image_bytes:
            self._images.remove(HostImage(image.id, (build.tag,)))
            size, most = format_bytes(image.size_bytes), format_bytes(self._work.image_bytes)
            raise ImageError(f"the image has {size}, more than {most} (setting image_max_bytes); it was removed")
        task.image = image

    def push(self, name: str) -> ImageTask:
        """Start a push, for admins, to a registry that the operator lists. Raises Invalid, Forbidden."""
        ask = AccessRequest("admin", name=name, sub="images/push")
        access.require(ask, self._registry)
        registry = registry_of(name) or _DEFAULT_REGISTRY
        if message := tag_refused(name):
            raise errors.invalid([Problem.of_request("image", message)])
        if registry not in self._work.push_registries:
            registries = ", ".join(self._work.push_registries) or "none"
            message = f"the operator allows no pushes to {registry} (setting push_registries: {registries})"
            raise errors.Forbidden(f"{message}; name the image REGISTRY/{name.rpartition('/')[2]}")

        # Runs as the task is read, when a place was taken for it.
        def steps(task: ImageTask) -> Iterator[ImageProgress]:
            yield from task.run(lambda: self._images.push(with_tag(name), seconds=TRANSFER_SECONDS))
            task.image = self._images.find(name)

        return self._start_task(ask, ImageTask(steps, failure=errors.ServiceUnavailable))

    def delete(self, name: str) -> None:
        """Delete an image by one of its names, for admins. Raises Invalid, NotFound; Conflict while it is used."""
        ask = AccessRequest("admin", name=name, sub="images/delete")
        access.require(ask, self._registry)
        try:
            image = self._images.find(name)
        except ImageError as error:
            raise errors.ServiceUnavailable(str(error)) from error
        if rules.is_own(name) or (image is not None and _is_own_id(name, image)):
            message = f"`{name}` is one of Paddock's own, which its sandboxes need; remove it with `docker rmi {name}`"
            raise errors.invalid([Problem.of_request("image", message)])
        if image is None:
            raise errors.NotFound(f"image `{name}` is not on this host; `paddock image list` shows those that are")
        self._recorder.record_use(ask, {"image": name})
        if refusal := self._images.delete(name):
            raise errors.Conflict(f"image `{name}` is not deleted: {refusal}")

    def _usable_names(self, image: HostImage) -> tuple[str, ...]:
        return tuple(filter(self._is_usable, image.names))

    def _is_usable(self, name: str) -> bool:
        """Return True if the caller may use an image by this name."""
        asking = access.caller()
        return not self._image_refusals(name) and (asking is None or may_use_image(asking, name))

    def _image_refusals(self, name: str) -> Sequence[str]:
        """Return every reason why nobody may use this image."""
        try:
            _NAME.validate_python(name)
        except ValidationError:
            return (f"`{name[:200]}` is not an image's name; write it with its tag, such as paddock/python:1",)
        return tuple(rules.image_refusals(name, self._allowed))

    def _start_task(self, ask: AccessRequest, task: ImageTask) -> ImageTask:
        with self._lock:
            if self._open >= AT_ONCE:
                message = f"{AT_ONCE} pulls, builds and pushes are under way, which is the limit"
                raise errors.TooManyRequests(f"{message}; try again when one has ended")
            self._open += 1
        try:
            self._recorder.record_use(ask, {})
        except BaseException:
            self._finish()
            raise
        _log.info("image work started", operation=ask.sub, image=ask.name)
        return task.holding(self._finish)

    def _finish(self) -> None:
        with self._lock:
            self._open -= 1


def _is_own_id(name: str, image: HostImage) -> bool:
    """Return True for an id or a digest of an image of Paddock's own. A further name of one can be deleted."""
    return with_tag(name) not in image.names and any(map(rules.is_own, image.names))
