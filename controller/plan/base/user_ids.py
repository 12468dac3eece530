"""User ids in use, and the next one that is free."""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain

from controller.kinds.observed.observed import Container
from controller.kinds.planning.instance_record import Instance
from controller.kinds.runtime.user_ids import IdRange, own_id
from controller.plan.base.instance_index import index_of


def in_use(instances: Mapping[str, Instance], containers_by_uid: Mapping[str, Sequence[Container]]) -> set[int]:
    """Return the ids of all records, and of all containers, whoever they belong to."""
    recorded = set(index_of(instances).user_ids.values())
    return recorded | {own_id(container.user) for containers in containers_by_uid.values() for container in containers}


def newest(instances: Mapping[str, Instance]) -> int:
    """Return the id that was assigned last, as far as the records tell; 0 if none was."""
    ids = index_of(instances).user_ids
    return max(((instances[uid].created_at, user_id) for uid, user_id in ids.items()), default=(0.0, 0))[1]


def next_free(own_ids: IdRange, used_ids: Collection[int], last: int) -> int:
    """Return the first id after `last` that is free, going round; 0 if none is."""
    start = last + 1 if last in own_ids else own_ids.first
    order = chain(range(start, own_ids.last + 1), range(own_ids.first, start))
    return next((user_id for user_id in order if user_id not in used_ids), 0)
