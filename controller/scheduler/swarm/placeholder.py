"""Image of the placeholders: one program of some instructions, which waits for ever.

It is made here, byte for byte the same on every host, so that its id is the same, too. Services name it by that id: an
engine then asks no registry for it, and runs nothing else. Nobody has to carry an image to each host.
"""

import hashlib
import io
import json
import struct
import tarfile

NAME = "paddock/placeholder:1"
_PROGRAM = "pause"
_ADDRESS = 0x400000
_EPOCH = "1970-01-01T00:00:00Z"
# By the engine's word for its architecture: the image's word, the ELF machine, and the instructions.
_MACHINES = {
    # mov eax, 34; syscall; jmp back
    "x86_64": ("amd64", 62, bytes.fromhex("b822000000 0f05 ebf7")),
    # x0..x3 = 0; x8 = 73 (ppoll, as there is no pause); svc 0; b back
    "aarch64": (
        "arm64",
        183,
        struct.pack("<7I", *(0xD2800000 + number for number in range(4)), 0xD2800928, 0xD4000001, 0x17FFFFFA),
    ),
}


def architectures() -> tuple[str, ...]:
    return tuple(_MACHINES)


def archive(architecture: str) -> bytes:
    """Return the image as `docker load` takes it. Raises KeyError for an architecture that is not known here."""
    image_architecture, machine, code = _MACHINES[architecture]
    layer = _tar({_PROGRAM: (_elf(machine, code), 0o555)})
    config = json.dumps(
        {
            "architecture": image_architecture,
            "os": "linux",
            "created": _EPOCH,
            "config": {"Entrypoint": [f"/{_PROGRAM}"]},
            "history": [{"created": _EPOCH, "comment": "made by Paddock"}],
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        },
        sort_keys=True,
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [NAME], "Layers": ["layer.tar"]}]).encode()
    return _tar({config_name: (config, 0o444), "layer.tar": (layer, 0o444), "manifest.json": (manifest, 0o444)})


def _elf(machine: int, code: bytes) -> bytes:
    """Return a 64-bit, little-endian ELF program that is this code and nothing else."""
    begins = 64 + 56  # behind the header and its one segment
    size = begins + len(code)
    header = struct.pack(
        "<4s5B7x2HI3QI6H",
        *(b"\x7fELF", 2, 1, 1, 0, 0),
        *(2, machine, 1, _ADDRESS + begins, 64, 0, 0, 64, 56, 1, 0, 0, 0),
    )
    segment = struct.pack("<2I6Q", 1, 5, 0, _ADDRESS, _ADDRESS, size, size, 0x1000)
    return header + segment + code


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
