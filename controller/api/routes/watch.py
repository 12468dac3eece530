"""What a list can be asked besides: to go on as a watch, and to be of one name only."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from fastapi import Query

from controller.api.streams.watch import WatchResponse, WatchStreams, as_objects, as_tables
from controller.kinds.registry import Kind
from controller.service.errors import BadRequest
from controller.service.services import Services

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

    @property
    def name(self) -> str:
        """The one name asked for; empty: every name. BadRequest for a field selector that says something else."""
        if not self.fields:
            return ""
        found = _NAME_FIELD.match(self.fields)
        if found is None:
            raise BadRequest(f"field selector `{self.fields}`: write metadata.name=NAME, the only one of a watch")
        return found[1]


def list_query(
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
            description="watch: tell what came after this revision (that of a list, an object or a bookmark); "
            "left out or 0: begin with what is there, as ADDED. A list is always the newest",
        ),
    ] = "",
    bookmarks: Annotated[
        bool,
        Query(alias="allowWatchBookmarks", description="watch: say at least once a minute how far everything was told"),
    ] = False,
    seconds: Annotated[
        int, Query(alias="timeoutSeconds", ge=0, le=86400, description="watch: end after so long; 0: an hour")
    ] = 0,
) -> ListQuery:
    """FastAPI reads the parameters of this function from the query."""
    return ListQuery(labels, fields, watch, int(since or 0), bookmarks, seconds)


class KindWatches:
    """The watches of one kind."""

    def __init__(self, kind: Kind, services: Services, streams: WatchStreams) -> None:
        self._kind, self._watches, self._streams = kind, services.watches, streams
        self._now: Callable[[], float] = services.objects.now

    async def answer(self, namespace: str | None, query: ListQuery, *, rows: bool) -> WatchResponse:
        """The lines of a watch, as whole objects or as tables of one row."""
        open_ = partial(
            self._watches.open,
            self._kind,
            namespace,
            name=query.name,
            labels=query.labels,
            since=query.since,
            bookmarks=query.bookmarks,
        )
        encode = as_tables(self._kind, self._now) if rows else as_objects(self._kind)
        return await self._streams.answer(open_, encode, query.seconds or None)
