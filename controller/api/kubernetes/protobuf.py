"""Protocol buffers of kubectl: OpenAPI v2 as a document, and the envelope of its requests. Pure.

The field numbers are those of OpenAPIv2.proto (gnostic) and of Kubernetes' runtime.Unknown.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

Json = Mapping[str, Any]
OPENAPI_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_MAGIC = b"k8s\x00"
_VARINT, _BYTES = 0, 2
_METHODS = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}


def openapi_v2(document: Json) -> bytes:
    """Encode an OpenAPI v2 document: what kubectl reads of it."""
    info = _text(1, document["info"]["title"]) + _text(2, document["info"]["version"])
    paths = b"".join(_named(2, name, _path(item)) for name, item in document["paths"].items())
    definitions = b"".join(_named(1, name, _schema(schema)) for name, schema in document["definitions"].items())
    return _text(1, document["swagger"]) + _message(2, info) + _message(8, paths) + _message(9, definitions)


def _path(item: Json) -> bytes:
    return b"".join(_message(_METHODS[method], _operation(operation)) for method, operation in item.items())


def _operation(operation: Json) -> bytes:
    parameters = b""
    for parameter in operation.get("parameters", ()):
        query = _text(2, "query") + _text(4, parameter["name"]) + _text(6, parameter["type"])
        parameters += _message(8, _message(1, _message(2, _message(3, query))))
    return parameters + _extensions(13, operation)


def _schema(schema: Json) -> bytes:
    parts = [_text(number, schema.get(name, "")) for number, name in ((1, "$ref"), (2, "format"), (4, "description"))]
    parts += [_text(19, name) for name in schema.get("required", ())]
    if "additionalProperties" in schema:
        parts.append(_message(21, _message(1, _schema(schema["additionalProperties"]))))
    if "type" in schema:
        parts.append(_message(22, _text(1, schema["type"])))
    if "items" in schema:
        parts.append(_message(23, _message(1, _schema(schema["items"]))))
    if "properties" in schema:
        properties = b"".join(_named(1, name, _schema(inner)) for name, inner in schema["properties"].items())
        parts.append(_message(25, properties))
    return b"".join(parts) + _extensions(31, schema)


def _extensions(number: int, value: Json) -> bytes:
    names = [name for name in value if name.startswith("x-")]
    return b"".join(_named(number, name, _text(2, json.dumps(value[name]))) for name in names)


def _named(number: int, name: str, value: bytes) -> bytes:
    return _message(number, _text(1, name) + _message(2, value))


def _text(number: int, value: str) -> bytes:
    return _message(number, value.encode()) if value else b""


def _message(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def body_of(envelope: bytes) -> bytes:
    """Return the object in the envelope of a request of kubectl. Raises ValueError."""
    if not envelope.startswith(_MAGIC):
        raise ValueError("the body has not the beginning of Kubernetes' protocol buffers")
    return fields(envelope[len(_MAGIC) :]).get(2, b"")


def fields(data: bytes) -> dict[int, bytes]:
    """Return the fields of bytes in a message by number; the last one of a number. Raises ValueError."""
    return dict(_fields(data))


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        length, at = _read_varint(data, at)  # of bytes, or the number itself
        if key & 7 == _BYTES:
            if at + length > len(data):
                raise ValueError("a field ends after its message")
            yield key >> 3, data[at : at + length]
            at += length
        elif key & 7 != _VARINT:
            raise ValueError("a field has a type that no request has")


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 64, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise ValueError("a number has no end")
