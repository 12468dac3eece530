"""Query parameters of lists, watches and deletions."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Body, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.requests import HTTPConnection

from controller.kinds.common.owner_reference import Propagation
from controller.kinds.registry import Registry
from controller.service import errors

Labels = Annotated[
    str,
    Query(alias="labelSelector", max_length=4096, description="app=web, app!=web, env in (a,b), app, !app"),
]
Fields = Annotated[
    str,
    Query(alias="fieldSelector", max_length=512, description="metadata.name=NAME, or a field of the kind; = or !="),
]
Watch = Annotated[bool, Query(description="refused: computed objects can't be watched")]
KindOfEvent = Annotated[str, Query(max_length=64, description="only of objects of this kind")]
Name = Annotated[str, Query(max_length=253, description="only of objects of this name")]
Uid = Annotated[str, Query(max_length=64, description="only of the object with this uid")]
DryRun = Annotated[
    bool,
    BeforeValidator(lambda flag: flag == "All" or flag),  # as Kubernetes' clients say it
    Query(alias="dryRun", description="validate, admit and answer, but write nothing; `All` is true, too"),
]
Limit = Annotated[int, Query(ge=1, le=5000, description="only the newest so many")]
_NAME_FIELD = re.compile(r"metadata\.name==?([A-Za-z0-9._-]+)\Z")


@dataclass(frozen=True, slots=True)
class ListQuery:
    """The query of a list or a watch."""

    labels: str = ""
    fields: str = ""
    watch: bool = False
    since: int = 0
    bookmarks: bool = False
    seconds: int = 0
    limit: int = 0
    continue_token: str = ""

    @property
    def name(self) -> str:
        """The selected name; empty for every name. Raises BadRequest for any other field selector."""
        if not self.fields:
            return ""
        match = _NAME_FIELD.match(self.fields)
        if match is None:
            raise errors.BadRequest(
                f"field selector `{self.fields}`: write metadata.name=NAME, the only one of a watch"
            )
        return match[1]


async def list_query(
    labels: Annotated[
        str,
        Query(alias="labelSelector", max_length=4096, description="app=web, app!=web, env in (a,b), app, !app"),
    ] = "",
    fields: Annotated[
        str,
        Query(
            alias="fieldSelector",
            max_length=512,
            description="metadata.name=NAME; a list takes metadata.namespace, != and several terms, too",
        ),
    ] = "",
    watch: Annotated[bool, Query(description="stream changes as JSON lines of type and object")] = False,
    since: Annotated[
        str,
        Query(
            alias="resourceVersion",
            pattern=r"^[0-9]{0,18}$",
            description="watch: send changes after this revision (of a list, an object or a bookmark); "
            "omitted or 0: start with the existing objects, as ADDED. A list is always the newest",
        ),
    ] = "",
    bookmarks: Annotated[
        bool,
        Query(alias="allowWatchBookmarks", description="watch: send a BOOKMARK at least once a minute"),
    ] = False,
    seconds: Annotated[
        int, Query(alias="timeoutSeconds", ge=0, le=86400, description="watch: end after so many seconds; 0: an hour")
    ] = 0,
    limit: Annotated[
        int, Query(ge=0, le=100_000, description="list: at most so many, with a token for the rest; 0: all")
    ] = 0,
    continue_token: Annotated[
        str,
        Query(alias="continue", max_length=1024, description="list: metadata.continue of the page before"),
    ] = "",
    initial: Annotated[bool, Query(alias="sendInitialEvents", include_in_schema=False)] = False,
) -> ListQuery:
    """Return the query. FastAPI fills the parameters. Raises BadRequest for a watch that a client waits on in vain."""
    if watch and initial:
        raise errors.BadRequest("sendInitialEvents: not served; list, then watch from the list's resourceVersion")
    return ListQuery(
        labels=labels,
        fields=fields,
        watch=watch,
        since=int(since or 0),
        bookmarks=bookmarks,
        seconds=seconds,
        limit=limit,
        continue_token=continue_token,
    )


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """The query of a list of a read-only kind. A `limit` of 0 means all, else the newest so many."""

    labels: str = ""
    fields: str = ""
    watch: bool = False
    limit: int = 0


async def read_query(labels: Labels = "", fields: Fields = "", watch: Watch = False) -> ReadQuery:
    """Return the query. FastAPI fills the parameters."""
    return ReadQuery(labels, fields, watch)


async def event_query(
    connection: HTTPConnection,
    labels: Labels = "",
    fields: Fields = "",
    watch: Watch = False,
    kind: KindOfEvent = "",
    name: Name = "",
    uid: Uid = "",
    limit: Limit = 5000,
) -> ReadQuery:
    """Return the query of a list of events: `kind`, `name` and `uid` are short for selectors of involvedObject."""
    registry: Registry = connection.app.state.services.registry
    known_kind = registry.by_word(kind)
    selectors = {"kind": known_kind.name if known_kind else kind, "name": name, "uid": uid}
    terms = [f"involvedObject.{field}={value}" for field, value in selectors.items() if value]
    return ReadQuery(labels, ",".join([fields, *terms] if fields else terms), watch, limit)


class DeleteOptions(BaseModel):
    """Kubernetes' DeleteOptions, as far as supported; other fields are refused."""

    model_config = ConfigDict(extra="forbid")

    kind: str = "DeleteOptions"
    apiVersion: str = "v1"
    propagationPolicy: Propagation | None = None
    dryRun: Annotated[tuple[Literal["All"], ...], Field(max_length=1)] = ()
    gracePeriodSeconds: Annotated[
        int | None, Field(ge=0, description="as in the query; the sandbox's own is shutdownGracePeriodSeconds")
    ] = None


@dataclass(frozen=True, slots=True)
class Deletion:
    """Manner of a deletion. `propagation` is for owned objects; None: the default."""

    propagation: Propagation | None
    dry_run: bool


async def deletion(
    policy: Annotated[
        Propagation | None,
        Query(alias="propagationPolicy", description="deletion of the objects that it owns; default Background"),
    ] = None,
    dry_run: DryRun = False,
    options: Annotated[DeleteOptions | None, Body()] = None,
) -> Deletion:
    """Return the request's options. Raises BadRequest when query and body differ."""
    in_body = options.propagationPolicy if options else None
    if policy and in_body and policy != in_body:
        raise errors.BadRequest(f"propagationPolicy is {policy} in the query and {in_body} in the body; name one")
    return Deletion(policy or in_body, dry_run or bool(options and options.dryRun))
