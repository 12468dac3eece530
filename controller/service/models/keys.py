"""Keys of providers. They are read for the gateway alone; none is stored, shown or logged."""

from controller.kinds.runtime.secret import NoSecret, SecretNotFound, SecretRef, providers_folder
from controller.ports import Secrets
from controller.service.sandbox.secrets import secret_text


def provider_key(secrets: Secrets | None, namespace: str, name: str) -> str:
    """Return a key: from the providers' folder, else from that of the namespace's sandboxes. Raises NoSecret."""
    try:
        key = secret_text(secrets, providers_folder(namespace), SecretRef(name))
    except SecretNotFound:
        try:
            key = secret_text(secrets, namespace, SecretRef(name))
        except SecretNotFound as error:
            words = f"there is no secret `{name}` for namespace `{namespace}`"
            raise SecretNotFound(f"{words}; set it on the host: paddock secret set {name} -n {namespace}") from error
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable():
        raise NoSecret(f"the secret `{name}` is no key: it is empty, or has other than printable ASCII characters")
    return key
