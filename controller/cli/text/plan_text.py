"""Plans as text: changes of each object, how they take effect, and the engine calls."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_SHOWN = 72


def plan_text(item: Mapping[str, Any]) -> str:
    """Format one item of the daemon's `diff` response with a plan."""
    return "\n".join((f"{item['resource']}/{item['metadata']['name']} {item['result']}", *_lines(item)))


def quota_lines(items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the use of each affected quota, before and after."""
    for quota in {quota["quota"]: quota for item in items for quota in item["quotas"]}.values():
        yield f"{quota['quota']}: " + ", ".join(_use_line(use) for use in quota["used"])


def _use_line(use: Mapping[str, str]) -> str:
    hard = use["hard"]
    before, after = f"{use['before']}/{hard}", f"{use['after']}/{hard}"
    return f"{use['resource']} {before}" + ("" if before == after else f" -> {after}")


def _lines(item: Mapping[str, Any]) -> Iterator[str]:
    for change in item["changes"]:
        yield f"  {change['field']}: {_value(change['before'])} -> {_value(change['after'])}"
        yield f"    {change['effect']}: {change['why']}"
    single = len(item["plans"]) == 1 and item["kind"] in ("Sandbox", "SandboxPool")
    if not item["plans"]:
        yield "  engine calls: none"
    for plan in item["plans"]:
        yield from _plan(plan, "" if single else f" for {plan['object']}")


def _plan(plan: Mapping[str, Any], owner: str) -> Iterator[str]:
    calls = plan["calls"]
    if plan["reason"] == "OtherHost":
        yield f"  engine calls{owner}: not known here; {plan['message']}"
        return
    yield f"  engine calls{owner}:" + ("" if calls else " none")
    for call in calls:
        yield f"    {call['call']}  # {call['why']}"
    if plan["gone"]:
        yield "  then deleted"
    elif plan["reason"]:
        wait = "" if plan["waitSeconds"] is None else f", for {plan['waitSeconds']:.0f} s at most"
        yield f"  then {plan['reason']}: {plan['message']}{wait}"


def _value(value: Any) -> str:
    if value is None:
        return "(not set)"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
