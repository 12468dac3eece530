"""Create and replace one object (POST and PUT): no merge, and a replacement names its resourceVersion."""

import structlog

from controller.documents.document import Document, parse, without_nulls
from controller.kinds.meta import StoredObject
from controller.kinds.registry import Kind
from controller.service import errors
from controller.service.objects.normalize import Normal
from controller.service.objects.objects import not_found
from controller.service.objects.pipeline import PendingWrite, Pipeline, WriteTransaction, with_spec
from controller.service.parsing import check_turn

_log = structlog.get_logger("paddock.write")


class Write:
    """The use-cases. A body is the text of one document. Fields of Paddock's own (status, uid ...) are ignored.

    `file` names the body in messages, with positions; "": nobody wrote it, and fields alone tell the place.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def create(
        self,
        kind: Kind,
        namespace: str,
        body: str,
        *,
        written_by: str = "",
        file: str = "",
        dry_run: bool = False,
    ) -> StoredObject:
        """Create an object. Raises AlreadyExists, Invalid with every reason, BadRequest, or ServiceUnavailable.

        `dry_run`: check and admit it, and write nothing.
        """
        document = self._read(kind, namespace, body, file)
        if document.resource_version or document.uid:
            raise errors.BadRequest("resourceVersion and uid are given by the server; leave them out to create")
        with self._pipeline.transaction() as writing:
            writing.read_ahead([document])
            spec = _admit(writing, document)
            if writing.transaction.get(*document.key) is not None:
                text = f"{kind.plural} `{document.name}` already exists"
                raise errors.AlreadyExists(text, kind=kind.plural, name=document.name)
            pending = writing.check(PendingWrite(document, None, writing.new_object(document, spec)))
            if dry_run:
                return pending.obj
            [stored] = writing.put([pending])
        self._announce("created", stored, written_by)
        return stored

    def replace(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: str,
        *,
        written_by: str = "",
        file: str = "",
        dry_run: bool = False,
    ) -> StoredObject:
        """Replace an object's spec, labels, annotations and owners; its status stays.

        Raises NotFound, Conflict when it has changed since, Invalid with every reason, BadRequest, or
        ServiceUnavailable.
        """
        document = self._read(kind, namespace, body, file)
        if document.name != name:
            raise errors.BadRequest(f"the body is of `{document.name}`, the path of `{name}`; make them agree")
        if not document.resource_version:
            path = ("metadata", "resourceVersion")
            text = "is required to replace an object; read the object, change that, and send it back"
            raise errors.invalid([document.problem(path, text)])
        with self._pipeline.transaction() as writing:
            writing.read_ahead([document])
            spec = _admit(writing, document)
            current = writing.transaction.get(*document.key)
            if current is None:
                raise not_found(kind, namespace, name)
            _check_current(document, current)
            labels, annotations = without_nulls(dict(document.labels)), without_nulls(dict(document.annotations))
            obj = with_spec(kind, current, spec, labels=labels, annotations=annotations)
            pending = writing.check(PendingWrite(document, current, obj))
            if dry_run:
                return pending.obj
            [stored] = writing.put([pending])
        if stored.resource_version != current.resource_version:
            self._announce("replaced", stored, written_by)
        return stored

    def _read(self, kind: Kind, namespace: str, body: str, file: str) -> Document:
        check_turn(body)
        documents, problems = parse(file, body, self._pipeline.registry, namespace=namespace or None)
        if problems:
            raise errors.invalid(problems)
        if len(documents) != 1:
            raise errors.BadRequest(f"the body must be one {kind.name}, not {len(documents) or 'nothing'}")
        (document,) = documents
        if document.kind.name != kind.name:
            raise errors.BadRequest(f"the body is a {document.kind.name}, and the path is of {kind.plural}")
        return document

    def _announce(self, event: str, stored: StoredObject, written_by: str) -> None:
        self._pipeline.wake()
        _log.info(event, object=str(stored.ref), generation=stored.generation, by=written_by)


def _admit(writing: WriteTransaction, document: Document) -> Normal:
    """Return the body's spec. Raises Invalid with every problem."""
    spec, problems = writing.admit(document, without_nulls(document.spec), document.text)
    if problems or spec is None:
        raise errors.invalid(problems)
    return spec


def _check_current(document: Document, current: StoredObject) -> None:
    """Raise Conflict unless the body was made from the stored version of the object."""
    subject = f"{current.kind.lower()}/{current.name}"
    if document.uid and document.uid != current.uid:
        raise errors.Conflict(f"{subject} was deleted and recreated since; read it again")
    if document.resource_version != str(current.resource_version):
        text = f"{subject} was changed since (it is at {current.resource_version}); read it again, then replace it"
        raise errors.Conflict(text)
    if current.deleted_at is not None:
        raise errors.Conflict(f"{subject} is being deleted; wait until it is gone, then create it again")
