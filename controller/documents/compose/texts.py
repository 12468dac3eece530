"""Texts that become files of a sandbox: `configs:`, `secrets:` with a file or a variable, and binds of single files."""

from collections.abc import Mapping
from dataclasses import dataclass

from controller.documents.compose.element import Element, mapping_node, scalar
from controller.documents.yaml_tree import Node

_STORED = "its text is part of the sandbox's spec; a secret that nobody is to read there is `external: true`"
_SOURCES = ("file", "environment", "content")


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret of the file: the name of the operator's, or its text."""

    name: Node | None = None
    text: str | None = None


def as_file(path: str, text: str, at: Node) -> Node:
    """Return a file of a spec."""
    return mapping_node({"mountPath": scalar(path, at), "text": scalar(text, at)}, at)


def read_secrets(element: Element | None, files: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, Secret]:
    """Return the file's secrets by their names in it."""
    secrets: dict[str, Secret] = {}
    for name, secret in element.fields().items() if element is not None else ():
        secret.check_keys("external", "name", "file", "environment")
        external, name_element = secret.child("external"), secret.child("name")
        if external is not None and external.flag():
            at = name_element.node if name_element is not None else (secret.key or secret.node)
            operator_name = (name_element.text() if name_element is not None else None) or name
            secrets[name] = Secret(name=scalar(operator_name, at))
            continue
        text = _text(secret, files, variables)
        if text is not None:
            secret.note(_STORED)
        secrets[name] = Secret(text=text)
    return secrets


def read_configs(element: Element | None, files: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, Node]:
    """Return the texts of the file's configs by their names in it."""
    configs: dict[str, Node] = {}
    for name, config in element.fields().items() if element is not None else ():
        remedy = "configs of others are not read; write `file:` or `content:`"
        config.check_keys("name", *_SOURCES, external=remedy)
        text = _text(config, files, variables)
        configs[name] = scalar(text or "", config.node)
    return configs


def _text(element: Element, files: Mapping[str, str], variables: Mapping[str, str]) -> str | None:
    """Return the text that a secret or config stands for; None and a problem if there is none."""
    file, variable, content = (element.child(name) for name in _SOURCES)
    if content is not None:
        return content.text()
    if variable is not None:
        name = variable.text() or ""
        if name not in variables:
            variable.refuse(f"`{name}` is not set where this command runs; set it, or write `file:`")
        return variables.get(name)
    if file is None:
        element.refuse("needs `file:`, `environment:` or `external: true`", at_key=True)
        return None
    path = file.text() or ""
    if path not in files:
        file.refuse(
            f"`{path}` is no text that is read here; add the file, or write `external: true` for the operator's"
        )
    return files.get(path)


def read_configs_of(element: Element | None, configs: Mapping[str, Node]) -> list[Node]:
    """Return the files of a service's `configs:`."""
    files: list[Node] = []
    for config in element.items() if element is not None else ():
        long = config.node.fields is not None
        if long:
            config.check_keys("source", "target", "uid", "gid", "mode")
        source, target = (config.child("source"), config.child("target")) if long else (config, None)
        name = source.text() if source is not None else None
        if name is None or name not in configs:
            config.refuse(f"there is no config `{name}` in this file; add it at the end: `configs: {{{name}: ...}}`")
            continue
        path = (target.text() if target is not None else None) or f"/{name}"
        files.append(as_file(path, str(configs[name].value), config.node))
    return files
