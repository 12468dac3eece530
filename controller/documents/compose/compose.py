"""A Compose file as Sandbox documents. All problems at once, each with its position and what to write instead.

Each service is a Sandbox named PROJECT-SERVICE, or by its `container_name`. They are applied as a set, so that `down`
deletes exactly them.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.documents.compose import refused
from controller.documents.compose.build import Build
from controller.documents.compose.element import OURS, Element, Report, mapping_node, scalar
from controller.documents.compose.merge import extended, merged, read_tree
from controller.documents.compose.mounts import is_name, like_name, read_volumes
from controller.documents.compose.networks import Joined, check_separation, read_joined, read_networks
from controller.documents.compose.order import check_order, read_dependencies, with_dependencies
from controller.documents.compose.ports import Published
from controller.documents.compose.service import Shared, check_defaults, read_env_files, read_service
from controller.documents.compose.texts import read_configs, read_secrets
from controller.documents.compose.variables import Replacer
from controller.documents.document import MAX_VALUES, Document, check_tree
from controller.documents.yaml_tree import REST_UNREPORTED, Node, Tree, ValueBudget, read
from controller.kinds.common.problem import MOST_PROBLEMS, Problem
from controller.kinds.registry import Registry
from controller.version import API_VERSION

PROJECT_LABEL, SERVICE_LABEL = "paddock/compose-project", "paddock/compose-service"
MAX_SERVICES = 200
# `$X` and `${X}`; or `X` as an item of a list, or as a key without a value.
_NAME_LIKE = re.compile(
    r"\$\{?([A-Za-z_]\w*)|(?<=[\[{,\s\"'])([A-Za-z_]\w*)(?=[\"']?\s*(?:[,\]}\n#]|\Z|:\s*(?:[,}\n#]|\Z)))", re.ASCII
)
MAX_MADE = 100_000  # values of all documents, with the file's `x-paddock` in each
MAX_LETTERS = 16 << 20  # of all texts, aliases counted as often as used
_TOO_LONG = f"more than {MAX_LETTERS >> 20} MiB of text, with what aliases and variables stand for"
_MADE_LETTERS = 30  # of a project's name
_LEVEL_NOTE = (
    "no security level is named, so it is development: root in the sandbox, the other services, no Internet,"
    " and 1Gi of memory where no `mem_limit` is set;"
    " write `x-paddock: {securityLevel: ..., network: {allowedHosts: [...]}}` for another one"
)
_TOP = ("name", "services", "volumes", "networks", "secrets", "configs", "version", OURS)


@dataclass(frozen=True, slots=True)
class Project:
    """Options of a Compose file.

    `name` replaces the file's own. `variables` are the only values of `${X}`. `folder` is where the file lies on this
    host, for relative binds ("": there are none). `files` are the texts of files beside it, by their paths as it writes
    them. `overrides` are further files, each with its text, merged into it in their order. Services with other
    `profiles` are left out; of the others, all, or `services` and those that they need. `image_volumes` are the VOLUMEs
    of images, by their names as services have them: where a service mounts nothing, it gets a volume.
    """

    name: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    overrides: Sequence[tuple[str, str]] = ()
    profiles: frozenset[str] = frozenset()
    services: frozenset[str] = frozenset()
    image_volumes: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Composed:
    """Result of one file. With problems the documents are not complete. `notes`: differences from Compose.

    `ports` are those that its services publish, `sandboxes` the names of their sandboxes, `builds` the images that are
    built for them, `volumes` the names of its own volumes, `named_volumes` those with a `name:`, which others may use.
    """

    project: str
    documents: list[Document]
    problems: list[Problem]
    notes: list[Problem]
    ports: Sequence[Published] = ()
    sandboxes: Mapping[str, str] = field(default_factory=dict)
    builds: Sequence[Build] = ()
    volumes: frozenset[str] = frozenset()
    named_volumes: frozenset[str] = frozenset()


def apply_set_name(namespace: str, project: str) -> str:
    """Return the apply set of a project. Sets have no namespace, so that of the project is in the name, as a hash."""
    digest = hashlib.sha256(f"{namespace}/{project}".encode()).hexdigest()[:8]
    return f"compose-{project[:34].rstrip('-')}-{digest}"


def read_compose(
    file: str,
    text: str,
    registry: Registry,
    project: Project,
    *,
    namespace: str | None = None,
    budget: ValueBudget | None = None,
) -> Composed:
    """Return the documents of a Compose file, its problems, and notes."""
    trees, problems = read(file, text, budget, merges=True)
    report = Report(file, problems)
    if problems or len(trees) != 1:
        if not problems:
            message = f"has {len(trees)} documents; a Compose file has one" if trees else "is empty; write `services:`"
            problems.append(Problem(file, 0, 0, "", message))
        return Composed(project.name, [], problems, [])
    root = trees[0].root
    if root.size > MAX_VALUES:
        message = f"has {root.size:,} values (aliases counted as often as used); at most {MAX_VALUES:,}: split the file"
        return Composed(project.name, [], [Problem(file, root.line, root.column, "", message)], [])
    root = _whole(root, report, project)
    if root.size > MAX_VALUES or _letters(root, {}) > MAX_LETTERS:
        Element(root, report).refuse(f"has {_TOO_LONG}: split the file")
        return Composed(project.name, [], _in_order(report.problems), [])
    name, sandboxes, shared = _sandboxes(Element(root, report), project)
    if report.problems:
        return Composed(name, [], _in_order(report.problems), [])
    lengths: dict[int, int] = {}
    if (
        sum(sandbox.size for sandbox in sandboxes) > MAX_MADE
        or sum(_letters(sandbox, lengths) for sandbox in sandboxes) > MAX_LETTERS
    ):
        Element(root, report).refuse(
            f"its sandboxes have more than {MAX_MADE:,} values, or {_TOO_LONG}: split the file"
        )
        return Composed(name, [], _in_order(report.problems), [])
    documents: list[Document] = []
    for sandbox in sandboxes:
        document, wrong = check_tree(Tree(file, sandbox), registry, namespace)
        report.problems += wrong
        documents += [document] if document is not None and not wrong else []
    problems, notes = _in_order(report.problems), _in_order(report.notes)
    if shared is None:
        return Composed(name, documents, problems, notes)
    volumes, named_volumes = _volumes(shared, documents)
    return Composed(
        name, documents, problems, notes, shared.ports, shared.sandboxes, shared.builds, volumes, named_volumes
    )


def _volumes(shared: Shared, documents: Iterable[Document]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the project's own volumes, with those that have no name in the file, and the ones with a `name:`."""
    named_volumes = frozenset(str(volume.name.value) for volume in shared.volumes.values() if volume.is_named)
    declared_names = frozenset(str(volume.name.value) for volume in shared.volumes.values())
    mount_names = {
        str(volume["name"]) for document in documents for volume in document.spec["template"].get("volumes") or ()
    }
    return (declared_names | mount_names) - named_volumes, named_volumes


def _whole(root: Node, report: Report, project: Project) -> Node:
    """Return the file with its variables replaced, its overrides merged, and `extends` carried out."""
    root = _with_overrides(root, report, project)
    return extended(Element(root, report), project.files, project.variables)


def _with_overrides(root: Node, report: Report, project: Project) -> Node:
    root = Replacer(project.variables).replace_in(Element(root, report))
    for file, text in project.overrides:
        override = read_tree(file, text, report)
        if override is not None:
            root = merged(root, Replacer(project.variables).replace_in(Element(override, report)))
    return root


def references(file: str, text: str, project: Project) -> Iterator[tuple[str, Element]]:
    """Yield the paths of files that this one names, as it writes them, with their places.

    Each may be a folder, or missing.
    """
    trees, problems = read(file, text, merges=True)
    if problems or len(trees) != 1:
        return
    report = Report(file)
    merged_root = Element(_with_overrides(trees[0].root, report, project), report)
    for service in _children(merged_root.child("services")):
        extends = service.child("extends")
        if extends is not None and extends.node.fields and (path := extends.child("file")) is not None:
            yield path.node.text, path
    root = Element(extended(merged_root, project.files, project.variables), report)
    for name in ("secrets", "configs"):
        for entry in _children(root.child(name)):
            if (path := entry.child("file")) is not None:
                yield path.node.text, path
    for service in _children(root.child("services")):
        for place, path_text, _ in read_env_files(service.child("env_file")):
            yield path_text, place
        volumes = service.child("volumes")
        for volume in volumes.items() if volumes is not None and volumes.node.items is not None else ():
            source = volume.child("source") if volume.node.fields is not None else None
            yield (source.node.text, source) if source is not None else (volume.node.text.partition(":")[0], volume)


def variable_names(texts: Iterable[str]) -> frozenset[str]:
    """Return all names in texts that may be variables: `$X`, `${X}`, and `X` alone in `environment:`."""
    return frozenset(match[1] or match[2] for text in texts for match in _NAME_LIKE.finditer(text))


def _children(element: Element | None) -> Iterator[Element]:
    if element is not None and element.node.fields is not None:
        yield from (child for child in element.fields().values() if child.node.fields is not None)


def project_name(file: str, text: str, project: Project) -> str | Problem:
    """Return the name of the project alone, whatever else the file says; or the problem with it."""
    if project.name:
        element = Element(scalar(project.name, Node(0, 0)), Report(file))
        return _name(element, project) or element.report.problems[0]
    trees, problems = read(file, text, merges=True)
    if problems or not trees:
        return problems[0] if problems else Problem(file, 0, 0, "", "is empty; write `services:`")
    root, report = trees[0].root, Report(file)
    entry = (root.fields or {}).get("name")
    if entry is not None:  # variables elsewhere may lack values, but a wrong name would be that of another project
        name = Replacer(project.variables).replace_in(Element(entry[1], report, ("name",), entry[0]))
        root = Node(root.line, root.column, fields={"name": (entry[0], name)})
        if report.problems:
            return report.problems[0]
    return _name(Element(root, report), project) or report.problems[0]


def is_named(file: str, text: str) -> bool:
    """Return True if the file names its project, rightly or not, or can't be read."""
    trees, problems = read(file, text, merges=True)
    return bool(problems) or any("name" in (tree.root.fields or {}) for tree in trees)


def name_of_services(file: str, text: str) -> str:
    """Return a project's name made of those of its services; "" if the file can't be read or has none."""
    trees, problems = read(file, text, merges=True)
    root = trees[0].root if trees and not problems else None
    services = (root.fields or {}).get("services") if root is not None else None
    names = sorted(services[1].fields or {}) if services is not None else []
    return like_name("-".join(names)[:_MADE_LETTERS]) if names else ""


def _letters(node: Node, lengths: dict[int, int]) -> int:
    """Return the length of all texts, aliases counted as often as used. `lengths` has those of shared nodes, by id."""
    if id(node) not in lengths:
        fields = (node.fields or {}).values()
        within = sum(len(key.text) + _letters(value, lengths) for key, value in fields)
        lengths[id(node)] = len(node.text) + within + sum(_letters(element, lengths) for element in node.items or ())
    return lengths[id(node)]


def _in_order(problems: list[Problem]) -> list[Problem]:
    ordered = sorted(dict.fromkeys(problems), key=lambda problem: (problem.line, problem.column))
    if len(ordered) > MOST_PROBLEMS:
        ordered[MOST_PROBLEMS:] = [Problem(ordered[0].file, 0, 0, "", REST_UNREPORTED)]
    return ordered


def _sandboxes(element: Element, project: Project) -> tuple[str, list[Node], Shared | None]:
    """Return the project's name, a document for each service, and what they share."""
    if element.node.fields is None:
        element.refuse("a Compose file is a mapping with `services:`")
        return project.name, [], None
    refused.check(element, _TOP, refused.TOP)
    name = _name(element, project)
    services = element.child("services")
    if services is None or not services.fields():
        (services or element).refuse("has no services; write `services: {NAME: {image: ...}}`")
        return name, [], None
    if len(services.fields()) > MAX_SERVICES:
        services.refuse(f"has {len(services.fields())} services; at most {MAX_SERVICES}: split the file")
        return name, [], None
    defaults = element.child(OURS)
    check_defaults(defaults)
    shared = _shared(element, services, name, project, defaults)
    active = {service: child for service, child in services.fields().items() if service in shared.sandboxes}
    if not active:
        services.refuse("has no service of the active profiles; add one (--profile)")
    documents = [_sandbox(service, child, shared) for service, child in active.items()]
    unnamed = [
        service
        for service, child in active.items()
        if child.node.fields is not None
        and not any(place is not None and place.child("securityLevel") for place in (defaults, child.child(OURS)))
    ]
    if unnamed:
        services.note(_LEVEL_NOTE)
    return name, documents, shared


def _shared(element: Element, services: Element, name: str, project: Project, defaults: Element | None) -> Shared:
    """Return what the services share; problems for networks and an order that can't be."""
    networks = element.child("networks")
    names = read_networks(networks)
    children, inactive = _active(services, project)
    mappings = {service: child for service, child in children.items() if child.node.fields is not None}
    dependencies = {service: read_dependencies(child) for service, child in mappings.items()}
    check_order({**dict.fromkeys(children, ()), **dependencies}, inactive)
    if project.services:
        for service in sorted(project.services - children.keys()):
            services.refuse(f"there is no service `{service}`; write one of {', '.join(children)}")
        active = with_dependencies({*project.services}, dependencies)
        children = {service: child for service, child in children.items() if service in active}
        mappings = {service: child for service, child in mappings.items() if service in active}
    joined = {service: read_joined(child, names) for service, child in mappings.items()}
    check_separation(networks, _networks_of_all(services, names))
    sandbox_names = _sandbox_names(services, name)
    return Shared(
        project=name,
        sandboxes={service: sandbox_names[service] for service in children},
        volumes=read_volumes(element.child("volumes"), name),
        secrets=read_secrets(element.child("secrets"), project.files, project.variables),
        configs=read_configs(element.child("configs"), project.files, project.variables),
        files=project.files,
        variables=project.variables,
        joined={**{service: Joined() for service in children}, **joined},
        dependencies={**dict.fromkeys(children, ()), **dependencies},
        folder=project.folder,
        image_volumes=project.image_volumes,
        defaults=defaults,
        own_names=frozenset(service for service, child in mappings.items() if child.child("container_name")),
    )


def _networks_of_all(services: Element, names: tuple[str, ...]) -> dict[str, Joined]:
    """Return the networks of all services, active or not: one that a later command starts joins those that run."""
    silent = Report(services.report.file)  # what is wrong with them is reported when they are active
    return {
        service: read_joined(replace(child, report=silent), names)
        for service, child in services.fields().items()
        if child.node.fields is not None
    }


def _active(services: Element, project: Project) -> tuple[dict[str, Element], dict[str, str]]:
    """Return the services of the active profiles, and why each other one is not active."""
    active: dict[str, Element] = {}
    inactive: dict[str, str] = {}
    for service, child in services.fields().items():
        profiles = child.child("profiles") if child.node.fields is not None else None
        names = {profile.node.text for profile in profiles.texts()} if profiles is not None else set()
        if not names or names & project.profiles or "*" in project.profiles or service in project.services:
            active[service] = child
        else:
            inactive[service] = (
                f"`{service}` has the profile {', '.join(sorted(names))}; add it (--profile), or remove it"
            )
    return active, inactive


def _sandbox_names(services: Element, project: str) -> dict[str, str]:
    """Return the name of each service's sandbox; problems for wrong ones and for two of one name."""
    names: dict[str, str] = {}
    for service, element in services.fields().items():
        container_name = element.child("container_name") if element.node.fields is not None else None
        asked_name = container_name.text() if container_name is not None else None
        name = like_name(asked_name or f"{project}-{service}")
        if asked_name and name != asked_name:
            assert container_name is not None
            container_name.note(f"its sandbox is named {name}: names have small letters, digits and `-` here")
        if name in names.values():
            (container_name or element).refuse(f"another service's sandbox is named `{name}`, too; rename one of them")
        names[service] = name
    return names


def _name(element: Element, project: Project) -> str:
    """Return the project's name; "" and a problem if there is none."""
    name_element = element.child("name") if not project.name else None
    name = project.name or (name_element.text() if name_element is not None else "") or ""
    if not name:
        element.refuse("the project has no name; add `name: shop`, or give one (--project NAME)")
    elif not is_name(name):
        (name_element or element).refuse(f"`{name}` is not a valid project name; write `{like_name(name)}`")
        return ""
    return name


def _sandbox(service: str, element: Element, shared: Shared) -> Node:
    """Return the document of one service."""
    at = element.key or element.node
    (label_nodes, annotations), spec = read_service(service, element, shared)
    label_nodes |= {PROJECT_LABEL: scalar(shared.project, at), SERVICE_LABEL: scalar(like_name(service), at)}
    metadata = {"name": scalar(shared.sandboxes[service], at), "labels": mapping_node(label_nodes, at)}
    if annotations:
        metadata["annotations"] = mapping_node(annotations, at)
    fields = {
        "apiVersion": scalar(API_VERSION, at),
        "kind": scalar("Sandbox", at),
        "metadata": mapping_node(metadata, at),
        "spec": spec,
    }
    return mapping_node(fields, at)
