"""Label selectors as Kubernetes writes them: `app=web,tier!=db,env in (a, b),!legacy`. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from controller.service.errors import BadRequest

_KEY = r"[A-Za-z0-9](?:[A-Za-z0-9_./-]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)?"
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)\Z")
_EQUAL = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})\Z")
_EXISTS = re.compile(rf"(!?)\s*({_KEY})\Z")
_COMMA = re.compile(r",(?![^()]*\))")
_VALUES = re.compile(rf"{_VALUE}\Z")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term. `values` None: the label exists. `must_match` False negates the term."""

    key: str
    values: frozenset[str] | None
    must_match: bool

    def matches(self, labels: Mapping[str, str]) -> bool:
        has = self.key in labels and (self.values is None or labels[self.key] in self.values)
        return has == self.must_match


@dataclass(frozen=True, slots=True)
class Selector:
    """A conjunction of requirements; without any it matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)


def parse(text: str) -> Selector:
    """Parse a selector. Raises BadRequest, with an example, if it is invalid."""
    if not text.strip():
        return Selector()
    return Selector(tuple(_term(term.strip(), text) for term in _COMMA.split(text)))


def _term(term: str, text: str) -> Requirement:
    if match := _SET.match(term):
        key, operator, values = match.groups()
        split = [element.strip() for element in values.split(",")]
        if all(_VALUES.match(element) for element in split):
            return Requirement(key, frozenset(split), operator == "in")
    elif match := _EQUAL.match(term):
        key, operator, value = match.groups()
        return Requirement(key, frozenset((value,)), operator != "!=")
    elif match := _EXISTS.match(term):
        return Requirement(match[2], None, not match[1])
    example = "app=web, app!=web, env in (a,b), env notin (a,b), app or !app"
    raise BadRequest(f"label selector `{text}`: can't read `{term}`; write {example}")
