"""What is said of an action that could not be carried out: what happened, to which object, what to do next."""

from controller.kinds.planning.action import CreateContainer
from controller.kinds.planning.outcome import Outcome, Transient

NO_DRIVER = "could not select device driver"
WITHOUT_DRIVER = (
    "this engine has no driver for them; install one (the NVIDIA Container Toolkit), restart the engine, and apply the "
    "sandbox anew, or ask for none"
)


def name_conflict(name: str, holder: str) -> Outcome:
    """A container can't have its name."""
    return Transient(
        "NameConflict",
        f"the name {name} is taken by {holder}; rename or remove that one (`docker rename {name} <other>`)",
    )


def image_missing(action: CreateContainer, words: str) -> str:
    """The engine has not got the image of a container that is to be made."""
    if not action.image_id:
        return no_image(action.config.image, words)
    return (
        f"the image that {action.config.image} was when this sandbox was made is not on this host any more ({words}); "
        "load it again, or change spec.template to take the image of that name as it is now"
    )


def no_image(image: str, words: str) -> str:
    """The engine has not got this image, nor could it pull it."""
    return f"{image} is not on this host ({words}); build it (`make images`), or pull it (`docker pull {image}`)"
