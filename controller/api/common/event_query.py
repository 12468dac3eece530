"""What a list of events can be asked besides: of which object, in words of their own, and how many."""

from collections.abc import Callable
from typing import Annotated

from fastapi import Query

from controller.api.common.read_query import Fields, Labels, ReadQuery, Watch
from controller.kinds.registry import Registry

Kind = Annotated[str, Query(max_length=64, description="of objects of this kind only")]
Name = Annotated[str, Query(max_length=253, description="of objects of this name only")]
Uid = Annotated[str, Query(max_length=64, description="of the object with this uid only")]
Limit = Annotated[int, Query(ge=1, le=5000, description="the newest so many")]


def event_query(registry: Registry) -> Callable[..., ReadQuery]:
    """The query of a list of events: `kind`, `name` and `uid` are short for field selectors of involvedObject."""

    def query(
        labels: Labels = "",
        fields: Fields = "",
        watch: Watch = False,
        kind: Kind = "",
        name: Name = "",
        uid: Uid = "",
        limit: Limit = 5000,
    ) -> ReadQuery:
        known = registry.by_word(kind)
        asked = {"kind": known.name if known else kind, "name": name, "uid": uid}
        terms = [f"involvedObject.{field}={value}" for field, value in asked.items() if value]
        return ReadQuery(labels, ",".join([fields, *terms] if fields else terms), watch, limit)

    return query
