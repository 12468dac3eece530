"""Secrets as values of variables."""

from controller.kinds.runtime.secret import NoSecret, SecretRef
from controller.ports import Secrets


def secret_text(secrets: Secrets | None, namespace: str, ref: SecretRef) -> str:
    """Return a secret's text, without the line break at its end. Raises NoSecret."""
    if secrets is None:
        raise NoSecret("this daemon serves no secrets")
    value = secrets.read(namespace, ref.name)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise NoSecret(f"the secret `{ref.name}` is not text; give it to the sandbox as a file") from None
    if "\0" in text:
        raise NoSecret(f"the secret `{ref.name}` holds a NUL; give it to the sandbox as a file")
    return text.removesuffix("\r\n") if text.endswith("\r\n") else text.removesuffix("\n")
