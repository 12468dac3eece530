"""What is said of an action that could not be carried out: what happened, to which object, what to do next."""

from controller.kinds.planning.action import CreateContainer
from controller.kinds.planning.outcome import Outcome, Transient

NO_DRIVER = "could not select device driver"
_UNKNOWN = "the registry does not have it, or wants a login for it"
WITHOUT_DRIVER = (
    "this engine has no driver for them; install one (the NVIDIA Container Toolkit), restart the engine, and apply the "
    "sandbox anew, or ask for none"
)

# What the engine says of its own attempt, and our words for it. What a registry answered is never repeated: it may be
# any server that the host can reach, and whoever names the image would read its answer.
_PULL_TROUBLE = (
    ("no space left on device", "the engine's disk is full"),
    ("toomanyrequests", "the registry wants fewer requests; log in (`docker login`), or try later"),
    ("no matching manifest", "the image is not made for this kind of machine"),
    ("manifest unknown", _UNKNOWN),
    ("connection refused", "nothing listens where the registry should be"),
    ("no such host", "the registry's name is not known to DNS"),
    ("i/o timeout", "the registry did not answer in time"),
    ("deadline exceeded", "the registry did not answer in time"),
    ("Client.Timeout", "the registry did not answer in time"),
    ("no route to host", "no route leads to the registry"),
    ("network is unreachable", "no route leads to the registry"),
    ("HTTP response to HTTPS client", "the registry does not speak TLS"),
    ("x509:", "the registry's certificate is not trusted"),
)


def not_pulled(status: int, said: str) -> str:
    """The engine could not pull an image: its status and what it said of it, in our words."""
    for sign, words in _PULL_TROUBLE:
        if sign in said:
            return words
    if status in (401, 403):
        return "the registry refuses this host's login"
    return _UNKNOWN if status == 404 else "the registry's answer is none that an image can be had from"


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
