"""A secret as the value of a variable."""

from controller.kinds.runtime.secret import NoSecret, SecretRef
from controller.ports import Secrets


def revealed(secrets: Secrets | None, namespace: str, asked: SecretRef) -> str:
    """Its text, without the line break that editors leave at a file's end. Raises NoSecret."""
    if secrets is None:
        raise NoSecret("this daemon knows no secrets")
    value = secrets.read(namespace, asked.name)
    try:
        text = value.decode().removesuffix("\n")
    except UnicodeDecodeError:
        raise NoSecret(f"the secret `{asked.name}` is no text; give it to the sandbox as a file") from None
    if "\0" in text:
        raise NoSecret(f"the secret `{asked.name}` holds a NUL; give it to the sandbox as a file")
    return text
