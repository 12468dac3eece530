"""The query of a list of a read-only kind."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query

Labels = Annotated[
    str,
    Query(alias="labelSelector", max_length=4096, description="app=web, app!=web, env in (a,b), app, !app"),
]
Fields = Annotated[
    str,
    Query(alias="fieldSelector", max_length=512, description="metadata.name=NAME, or a field of the kind; = or !="),
]
Watch = Annotated[bool, Query(description="refused: what is worked out at each reading can't be watched")]


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """What is asked for; `limit` 0: all of it, otherwise the last so many."""

    labels: str = ""
    fields: str = ""
    watch: bool = False
    limit: int = 0


def read_query(labels: Labels = "", fields: Fields = "", watch: Watch = False) -> ReadQuery:
    """FastAPI reads the parameters of this function from the query."""
    return ReadQuery(labels, fields, watch)
