"""Keys of providers. They are read for the gateway alone; none is stored, shown or logged."""

from collections.abc import Callable

from controller.kinds.runtime.secret import (
    NoSecret,
    ProviderKey,
    SecretNotFound,
    SecretRef,
    hosts_file,
    providers_folder,
)
from controller.ports import Secrets
from controller.service.exec.secrets import secret_text

HostsOf = Callable[[str, str], tuple[str, ...]]


def provider_key(secrets: Secrets | None, earlier: HostsOf, namespace: str, name: str) -> ProviderKey:
    """Return a key: from the providers' folder, else from that of the namespace's sandboxes. Raises NoSecret.

    `earlier` returns the hosts of a key that was set before keys had hosts.
    """
    folder = providers_folder(namespace)
    hosts: tuple[str, ...] | None = None
    try:
        key = secret_text(secrets, folder, SecretRef(name))
        try:
            hosts = tuple(secret_text(secrets, folder, SecretRef(hosts_file(name))).split())
        except SecretNotFound:
            hosts = earlier(namespace, name)
    except SecretNotFound:
        try:
            key = secret_text(secrets, namespace, SecretRef(name))
        except SecretNotFound as error:
            message = f"there is no secret `{name}` for namespace `{namespace}`"
            remedy = f"set it on the host: paddock secret set {name} --host HOST -n {namespace}"
            raise SecretNotFound(f"{message}; {remedy}") from error
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable():
        raise NoSecret(f"the secret `{name}` is no key: it is empty, or has other than printable ASCII characters")
    return ProviderKey(key, hosts)
