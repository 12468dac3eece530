"""What sandboxes use now: the figures that people ask for, of one or of all that run. Reads what was sampled."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from controller.kinds.meta import StoredObject
from controller.kinds.observed.usage import Sampled
from controller.kinds.registry import Kind
from controller.service import errors
from controller.service.objects.objects import Objects

# What each container that runs and can be read used lately, by its object's uid; a second old at most.
LastSamples = Callable[[], Mapping[str, Sampled]]


@dataclass(frozen=True, slots=True)
class Used:
    """A sandbox, and what it used."""

    obj: StoredObject
    sample: Sampled


class Usages:
    """The use-case. Nothing of it waits for the engine."""

    def __init__(self, objects: Objects, samples: LastSamples) -> None:
        self._objects, self._samples = objects, samples

    def one(self, kind: Kind, namespace: str, name: str) -> Used:
        """Of one sandbox. NotFound; Conflict while it does not run, or can't be read."""
        obj = self._objects.get(kind, namespace, name)
        sample = self._samples().get(obj.uid)
        if sample is None:
            raise errors.Conflict(
                f"{kind.name.lower()} `{name}` has no figures: it does not run, or its cgroup can't be read;"
                f" `paddock why {name}` says more"
            )
        return Used(obj, sample)

    def every(self, kind: Kind, namespace: str | None) -> Sequence[Used]:
        """Of all that run, in order of namespace and name. `namespace` None: everywhere."""
        found = self._objects.list(kind, namespace).objects
        samples = self._samples()
        return [Used(obj, samples[obj.uid]) for obj in found if obj.uid in samples]
