"""Every case file under cases/: the printed plan, word for word, and the conditions it names."""

from pathlib import Path

import pytest

from controller.plan.base.status_json import limits_to_json
from tests.plan.case_file import decide, read

CASES = sorted(Path(__file__).parent.glob("cases/*.yaml"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_printed_plan_matches_the_case(path: Path) -> None:
    snapshot, data = read(path)
    planned = decide(snapshot)
    assert str(planned) == data["plan"].strip()
    statuses = {write.ref.name: write.status for write in planned.writes.statuses}
    for name, condition in data.get("conditions", {}).items():
        document = {entry["type"]: f"{entry['status']} {entry['reason']}" for entry in statuses[name]["conditions"]}
        assert {type_: document[type_] for type_ in condition} == condition
    for name, desired in data.get("status", {}).items():
        assert {key: statuses[name].get(key) for key in desired} == desired
    records = {instance.parent_name: instance for instance in planned.writes.instances}
    for name, record in data.get("records", {}).items():
        limits = limits_to_json(records[name].reserves)
        assert {"role": records[name].role, **{key: limits[key] for key in limits if key in record}} == record
    if "events" in data:
        assert [f"{event.type} {event.reason}: {event.message}" for event in planned.writes.events] == data["events"]


def test_there_are_cases() -> None:
    assert len(CASES) >= 25
