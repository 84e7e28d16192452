"""Writes container images that ``docker load`` and ``podman load`` read.

A file of the format of ``docker save``: ``manifest.json``, one configuration, and each
layer as a tar archive, named by their SHA-256 digests. Every time is the epoch, so that
an image is a function of its files.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.image.tree import Kind, Tree

EPOCH: Final = 0
CREATED: Final = "1970-01-01T00:00:00Z"
ARCHITECTURE: Final = "amd64"
PRIVATE: Final = 0o700


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer of an image, written to a file.

    Attributes:
        name: what it holds, for people.
        path: the tar archive.
        digest: its SHA-256, lower-case hex.
        size: the bytes of the files in it.
    """

    name: str
    path: Path
    digest: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How an image's program is started.

    Attributes:
        user: number of user and group.
        environment: its whole environment.
        entry: the program, with the arguments that it always gets.
        arguments: its further arguments, which compose may replace.
        labels: names and values.
    """

    user: int
    environment: Mapping[str, str]
    entry: Sequence[str]
    arguments: Sequence[str]
    labels: Mapping[str, str]


def write_layer(
    tree: Tree, name: str, folder: Path, *, owned: Sequence[str] = (), owner: int = 0
) -> Layer:
    """Write a tree as a layer below a folder.

    Args:
        tree: to be written; everything belongs to root, and others only read it.
        name: of the layer.
        folder: for its file.
        owned: folders that belong to ``owner`` alone, where a volume is mounted.
        owner: number of user and group.
    """
    size = 0
    unnamed = folder / f"{name}.tar"
    with tarfile.open(unnamed, "w", format=tarfile.PAX_FORMAT) as archive:
        for path, entry in tree.entries():
            member = tarfile.TarInfo(path)
            member.mtime = EPOCH
            member.mode = entry.kind.mode & 0o777
            if entry.kind is Kind.DIRECTORY:
                member.type = tarfile.DIRTYPE
                if path in owned:
                    member.uid = member.gid = owner
                    member.mode = PRIVATE
                archive.addfile(member)
            elif entry.kind is Kind.LINK:
                member.type = tarfile.SYMTYPE
                member.linkname = entry.content.decode()
                archive.addfile(member)
            else:
                size += len(entry.content)
                member.size = len(entry.content)
                archive.addfile(member, io.BytesIO(entry.content))
    with unnamed.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    named = unnamed.rename(folder / f"{digest}.tar")
    return Layer(name=name, path=named, digest=digest, size=size)


def write_image(
    target: Path, tag: str, layers: Sequence[Layer], settings: Settings
) -> str:
    """Write an image; return its id, 64 hex digits: the digest of its configuration.

    Args:
        target: the file.
        tag: the name under which it is loaded.
        layers: from the lowest to the highest.
        settings: how its program is started.
    """
    config = _config(layers, settings)
    identity = hashlib.sha256(config).hexdigest()
    manifest = [
        {
            "Config": f"{identity}.json",
            "RepoTags": [tag],
            "Layers": [layer.path.name for layer in layers],
        }
    ]
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for layer in layers:
            with layer.path.open("rb") as file:
                member = _member(layer.path.name, layer.path.stat().st_size)
                archive.addfile(member, file)
        for name, content in (
            (f"{identity}.json", config),
            ("manifest.json", _json(manifest)),
        ):
            archive.addfile(_member(name, len(content)), io.BytesIO(content))
    return identity


def _config(layers: Sequence[Layer], settings: Settings) -> bytes:
    return _json(
        {
            "architecture": ARCHITECTURE,
            "os": "linux",
            "created": CREATED,
            "config": {
                "User": f"{settings.user}:{settings.user}",
                "Env": [f"{k}={v}" for k, v in sorted(settings.environment.items())],
                "Entrypoint": list(settings.entry),
                "Cmd": list(settings.arguments),
                "WorkingDir": "/",
                "Labels": dict(settings.labels),
            },
            "rootfs": {
                "type": "layers",
                "diff_ids": [f"sha256:{layer.digest}" for layer in layers],
            },
            "history": [
                {"created": CREATED, "created_by": f"curtilage: {layer.name}"}
                for layer in layers
            ],
        }
    )


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = size
    member.mtime = EPOCH
    return member


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
