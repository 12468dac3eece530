"""Quantities by Kubernetes' rules: exact, canonical, and refused in words."""

from decimal import Decimal
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from controller.documents.model_fields import quantity
from controller.kinds.base import Model
from controller.kinds.common.quantity import (
    FOR_HASH,
    Bytes,
    Millicores,
    format_bytes,
    format_cpu,
    parse_bytes,
    parse_cpu,
)
from controller.kinds.quota import HardLimits
from controller.kinds.registry import discover
from controller.kinds.runtime.mount import Mount

_SUFFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


@pytest.mark.parametrize(
    ("text", "millicores"),
    [
        ("500m", 500),
        ("2", 2000),
        (2, 2000),
        (0.25, 250),
        ("0.5", 500),
        ("1.5", 1500),
        ("1e1", 10000),
        ("0", 0),
        (".5", 500),
    ],
)
def test_cpu_is_read_as_kubernetes_reads_it(text: object, millicores: int) -> None:
    assert parse_cpu(text) == millicores


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("512Mi", 512 << 20),
        ("1.5Gi", 3 << 29),
        ("8G", 8 * 10**9),
        (1024, 1024),
        ("1e9", 10**9),
        ("128974848", 128974848),
    ],
)
def test_bytes_are_read_as_kubernetes_reads_them(text: object, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("512m", "`512m` is 0.512 bytes; write `512Mi`"),
        ("1.0001", "less than one byte"),
        ("5MB", "`MB` is not a unit of bytes"),
        ("lots", "is not a quantity"),
        ("-1", "is not a quantity"),
        (True, "must be a quantity"),
        (None, "must be a quantity"),
        ("", "is not a quantity"),
        ("1 Gi", "is not a quantity"),
    ],
)
def test_invalid_bytes_are_refused(text: object, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "words"), [("0.0001", "less than one millicore"), ("1Gi", "not a unit of CPU"), ("a", "not")]
)
def test_invalid_cpu_is_refused(text: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_cpu(text)


@settings(deadline=None)
@given(st.integers(0, 1 << 60))
def test_bytes_survive_their_own_text(count: int) -> None:
    assert parse_bytes(format_bytes(count)) == count


@settings(deadline=None)
@given(st.integers(0, 10**9))
def test_cpu_survives_its_own_text(millicores: int) -> None:
    assert parse_cpu(format_cpu(millicores)) == millicores


@settings(deadline=None)
@given(st.decimals(0, 10**6, places=3), st.sampled_from(sorted(_SUFFIXES)))
def test_bytes_are_exact_or_refused(number: Decimal, suffix: str) -> None:
    exact = number * _SUFFIXES[suffix]
    if exact == int(exact):
        assert parse_bytes(f"{number}{suffix}") == exact
    else:
        with pytest.raises(ValueError, match="less than one"):
            parse_bytes(f"{number}{suffix}")


@settings(deadline=None)
@given(st.integers(0, 1 << 60))
def test_the_text_is_canonical(count: int) -> None:
    text = format_bytes(count)
    assert format_bytes(parse_bytes(text)) == text


def models_with_quantities() -> dict[type[Model], dict[str, type[Millicores] | type[Bytes]]]:
    """Every spec model that holds a quantity, and its fields that are one."""
    discover()
    document, models = {}, [Model]
    while models:
        model = models.pop()
        models += model.__subclasses__()
        units = {name: quantity(info) for name, info in model.model_fields.items()}
        if any(units.values()):
            document[model] = {name: {"cpu": Millicores, "bytes": Bytes}[unit] for name, unit in units.items() if unit}
    return document


MODELS = models_with_quantities()
# What a model needs beside its quantities.
NEEDED = {"mount_path": "/data", "name": "data", "base": "development", "image": "a:1"}


def test_every_model_with_a_quantity_is_found() -> None:
    names = {model.__name__ for model in MODELS}
    assert names >= {"HardLimits", "PerSandbox", "PoolQuota", "ResourceLimits", "ProfileLimits", "TmpfsMount"}
    assert set(MODELS[HardLimits]) == {"cpu", "memory", "disk"}


@pytest.mark.parametrize("model", MODELS, ids=lambda each: each.__name__)
@given(data=st.data())
def test_a_parsed_quantity_is_never_parsed_again(model: type[Model], data: st.DataObject) -> None:
    """Text -> model, and from there by every way into a model of the same type: always the same number."""
    read = {}
    for name, type_ in MODELS[model].items():
        bounds = {type(entry).__name__: entry for entry in metadata(model.model_fields[name])}
        number = data.draw(st.integers(bounds["Ge"].ge, bounds["Le"].le), label=name)
        read[name] = type_(number)
    needed = {name: NEEDED[name] for name, info in model.model_fields.items() if info.is_required() and name in NEEDED}
    text = {Millicores: format_cpu, Bytes: format_bytes}
    created = model.model_validate(needed | {name: text[type(entry)](entry) for name, entry in read.items()})
    ways = {
        "the constructor, by name": model(**needed, **read),
        "each field of another": model(**{name: getattr(created, name) for name in model.model_fields}),
        "a dump as JSON": model.model_validate(created.model_dump(mode="json", by_alias=True)),
        "a dump": model.model_validate(created.model_dump()),
        "JSON text": model.model_validate_json(created.model_dump_json()),
        "a copy": created.model_copy(update=read),
        "validated again": model.model_validate(created),
    }
    for way, second in ways.items():
        assert second == created, way
        for name, number in read.items():
            assert getattr(second, name) == number, way
            assert type(getattr(second, name)) is type(number), way


def metadata(info: FieldInfo) -> list[Any]:
    inner = [entry for argument in get_args(info.annotation) for entry in getattr(argument, "__metadata__", ())]
    return [*info.metadata, *inner]


def test_a_default_is_a_quantity_as_well() -> None:
    for model, fields in MODELS.items():
        for name, type_ in fields.items():
            default = model.model_fields[name].default
            assert default in (None, PydanticUndefined) or type(default) is type_, f"{model.__name__}.{name}"


def test_a_bare_number_of_a_spec_is_cores_or_bytes() -> None:
    hard_limits = HardLimits.model_validate({"cpu": 2, "memory": 2, "disk": 0.0})
    assert (hard_limits.cpu, hard_limits.memory, hard_limits.disk) == (2000, 2, 0)


def test_a_sum_is_a_quantity_still() -> None:
    total = sum([Millicores(500), Millicores(250)])
    assert HardLimits(cpu=total).cpu == HardLimits(cpu=Millicores(1000) - 250).cpu == 750
    assert HardLimits(memory=Bytes(1) + 2).memory == 3


def test_one_unit_is_not_taken_for_the_other() -> None:
    with pytest.raises(ValueError, match="must be a quantity"):
        HardLimits(cpu=Bytes(1))
    with pytest.raises(ValueError, match="must be a quantity"):
        HardLimits(memory=Millicores(1))


@pytest.mark.parametrize("text", ["8G", "512M", "8Gi", "1500M", "7813Ki", "1k"])
def test_what_was_written_reads_back(text: str) -> None:
    assert format_bytes(parse_bytes(text)) == text


def test_texts_in_hashes_stay_those_of_before() -> None:
    class Folder(Model):
        size: Bytes

    folder = Folder(size=parse_bytes("8G"))
    assert (folder.model_dump(mode="json"), folder.model_dump(mode="json", context=FOR_HASH)) == (
        {"size": "8G"},
        {"size": "7812500Ki"},
    )


@pytest.mark.parametrize(
    ("size", "text"),
    [(10 * 10**9, "9765625Ki"), (64 * 10**6, "62500Ki"), (1_000_000 << 10, "1000000Ki"), (512 << 20, "512Mi")],
)
def test_the_text_of_a_mount_never_changes(size: int, text: str) -> None:
    """Hosts have it in their records, and compare it with what is desired: another text would make a container anew."""
    assert str(Mount("/data", "volume", "v", size_bytes=size)) == f"/data from volume v of {text} read-write"
    assert str(Mount("/tmp", "tmpfs", size_bytes=size)) == f"/tmp from tmpfs {text}"
    assert str(Mount("/work", "memory", size_bytes=size)) == f"/work from memory {text}"
