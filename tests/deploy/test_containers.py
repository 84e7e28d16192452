"""The builder of container images: what goes in, and the same bytes every time."""

import ctypes
import hashlib
import itertools
import json
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from deploy.containers import sbom, shrink
from deploy.containers.archive import (
    Layer,
    Settings,
    write_image,
    write_layer,
)
from deploy.containers.build import components, outputs, own_version, settings_of
from deploy.containers.layers import MODELS, Inputs, authorities, layer_trees
from deploy.containers.roles import AUTHORITIES, HEALTH, ROLES, USER
from deploy.image.build import LOCK, REQUIREMENTS
from deploy.image.errors import FormatError
from deploy.image.packages import Package, Use, parse_lock
from deploy.image.tree import Tree
from deploy.image.wheels import SITE, read_pins
from packageurl import PackageURL

from curtilage.client.detection.packs import ENGLISH, PACKS
from support.image_parts import write_deb, write_wheel

DIGEST = "ab" * 32
PYTHON_LIBRARY = "usr/lib/x86_64-linux-gnu/libz.so.1"
CERTIFICATE = "usr/share/ca-certificates/mozilla/{}.crt"
PARTS = sorted({part for role in ROLES.values() for part in role.parts} | {"lab"})
WEIGHTS = "curtilage/client/detection/detectors/model/weights/guard.onnx"


def read_tar(path: Path) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(path) as archive:
        found: dict[str, tuple[tarfile.TarInfo, bytes]] = {}
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            found[member.name] = (member, b"" if file is None else file.read())
        return found


# Layers and images.


def small_tree(order: list[tuple[str, bytes]]) -> Tree:
    tree = Tree()
    for path, content in order:
        tree.add_file(path, content, program=path.startswith("usr/bin"))
    tree.add_link("usr/lib/libx.so", "libx.so.1")
    tree.add_directory("var/lib/state")
    return tree


FILES = [("usr/bin/x", b"#!x"), ("etc/a", b""), ("etc/a-b", b"1"), ("lib/z", b"zz")]


def layer(folder: Path, order: list[tuple[str, bytes]]) -> Layer:
    folder.mkdir()
    return write_layer(
        small_tree(order), "code", folder, owned=["var/lib/state"], owner=USER
    )


def test_a_layer_is_the_same_whatever_the_order_of_making(tmp_path: Path) -> None:
    orders = itertools.permutations(FILES)
    made = [layer(tmp_path / str(at), list(each)) for at, each in enumerate(orders)]
    assert len({each.digest for each in made}) == 1
    assert {hashlib.sha256(each.path.read_bytes()).hexdigest() for each in made} == {
        made[0].digest
    }
    assert made[0].path.name == f"{made[0].digest}.tar"


def test_a_layer_belongs_to_root_at_the_epoch_but_for_the_state(tmp_path: Path) -> None:
    made = layer(tmp_path / "x", FILES)
    found = read_tar(made.path)
    assert made.size == sum(len(content) for _, content in FILES)
    for name, (member, _) in found.items():
        own = USER if name == "var/lib/state" else 0
        assert (member.uid, member.gid, member.mtime) == (own, own, 0)
        assert (member.uname, member.gname) == ("", "")
    modes = {name: member.mode for name, (member, _) in found.items()}
    assert modes["usr/bin/x"] == 0o755
    assert modes["etc/a"] == 0o644
    assert modes["var/lib/state"] == 0o700
    assert found["usr/lib/libx.so"][0].linkname == "libx.so.1"


USUAL = Settings(
    user=USER,
    environment={"B": "2", "A": "1"},
    entry=["/usr/bin/x"],
    arguments=["serve"],
    labels={"title": "x"},
)


def test_an_image_names_its_layers_and_its_settings_by_digest(tmp_path: Path) -> None:
    made = layer(tmp_path / "x", FILES)
    target = tmp_path / "image.tar"
    identity = write_image(target, "curtilage/x:1", [made], USUAL)
    found = read_tar(target)
    (manifest,) = cast("list[dict[str, Any]]", json.loads(found["manifest.json"][1]))
    assert manifest["RepoTags"] == ["curtilage/x:1"]
    config = found[manifest["Config"]][1]
    assert manifest["Config"] == f"{identity}.json"
    assert hashlib.sha256(config).hexdigest() == identity
    (name,) = manifest["Layers"]
    assert hashlib.sha256(found[name][1]).hexdigest() == made.digest
    read = cast("dict[str, Any]", json.loads(config))
    assert read["rootfs"] == {"type": "layers", "diff_ids": [f"sha256:{made.digest}"]}
    assert read["config"]["Env"] == ["A=1", "B=2"]
    assert read["config"]["User"] == f"{USER}:{USER}"
    assert read["config"]["Entrypoint"] == ["/usr/bin/x"]
    assert read["created"] == "1970-01-01T00:00:00Z"
    assert {member.mtime for member, _ in found.values()} == {0}


@pytest.mark.parametrize(
    "other",
    [
        replace(USUAL, user=0),
        replace(USUAL, environment={}),
        replace(USUAL, entry=["/y"]),
        replace(USUAL, arguments=[]),
    ],
    ids=["user", "environment", "entry", "arguments"],
)
def test_another_setting_is_another_image(tmp_path: Path, other: Settings) -> None:
    made = layer(tmp_path / "x", FILES)
    one = write_image(tmp_path / "one", "t", [made], USUAL)
    assert write_image(tmp_path / "two", "t", [made], other) != one


# What is in an image.


def package(name: str, use: Use = Use.ROOT) -> Package:
    return Package(use=use, name=name, version="1:2.0+x~1", sha256=DIGEST)


def inputs(tmp_path: Path, *, engine: bool, model: bool = False) -> Inputs:
    own = {f"curtilage/{part}/__init__.py": part.encode() for part in PARTS}
    own |= {
        "curtilage/py.typed": b"",
        WEIGHTS: b"weights",
        "curtilage-0.1.0.dist-info/METADATA": b"Name: curtilage\nVersion: 0.1.0\n",
        "curtilage-0.1.0.dist-info/RECORD": b"all parts",
    }
    library = {
        "aiohttp/__init__.py": b"code",
        "aiohttp/tests/test_x.py": b"test",
        "aiohttp/_x.pyi": b"types",
        "aiohttp-3.dist-info/METADATA": b"License-Expression: Apache-2.0 AND MIT\n",
    }
    native = {f"llama_cpp/lib/{name}": b"same" for name in ("libx.so", "libx.so.0")}
    native |= {"llama_cpp/x.py": b"x", "lib/libx.so": b"same", "include/x.h": b"x"}
    root = write_deb(tmp_path / "root.deb", {PYTHON_LIBRARY: b"z", "bin/sh": b"sh"})
    certificates = write_deb(
        tmp_path / "ca.deb", {CERTIFICATE.format(name): name.encode() for name in "ba"}
    )
    return Inputs(
        packages={
            package("zlib1g"): root,
            package("ca-certificates", Use.AUTHORITIES): certificates,
        },
        wheels=[write_wheel(tmp_path / "aiohttp-3-py3-none-any.whl", library)],
        engine=write_wheel(tmp_path / "llama_cpp_python-0.3-x.whl", native)
        if engine
        else None,
        model=[write_wheel(tmp_path / "llm_x-1-x.whl", {"llm_x/a.gguf": b"model"})]
        if model
        else [],
        own=write_wheel(tmp_path / "curtilage-0.1.0-py3-none-any.whl", own),
    )


def paths(trees: Mapping[str, Tree]) -> set[str]:
    return {path for tree in trees.values() for path, _ in tree.entries()}


@pytest.mark.parametrize("name", ROLES)
def test_an_image_holds_the_parts_of_its_role_alone(tmp_path: Path, name: str) -> None:
    role = ROLES[name]
    found = paths(layer_trees(role, inputs(tmp_path, engine=role.engine)))
    held = [part for part in PARTS if f"{SITE}/curtilage/{part}" in found]
    assert held == sorted(role.parts)
    assert f"{SITE}/curtilage-0.1.0.dist-info/METADATA" in found
    assert f"{SITE}/curtilage-0.1.0.dist-info/RECORD" not in found
    assert (f"{SITE}/curtilage_dev/emulator.py" in found) == role.development
    assert HEALTH in found
    assert set(role.folders) | set(role.state) <= found
    assert (f"{SITE}/llama_cpp/x.py" in found) == role.engine
    # Neither a shell nor a second copy of the engine, nor what is not read.
    unread = {"usr/bin/sh", f"{SITE}/lib/libx.so", f"{SITE}/include/x.h"}
    unread |= {f"{SITE}/aiohttp/tests/test_x.py", f"{SITE}/aiohttp/_x.pyi"}
    assert not found & unread


def test_models_are_a_layer_of_their_own(tmp_path: Path) -> None:
    trees = layer_trees(ROLES["client"], inputs(tmp_path, engine=True, model=True))
    assert list(trees) == ["system", "libraries", MODELS, "code"]
    files = {path for path, _ in trees[MODELS].entries()}
    assert {f"{SITE}/llm_x/a.gguf", f"{SITE}/{WEIGHTS}"} <= files
    assert f"{SITE}/{WEIGHTS}" not in paths({"code": trees["code"]})
    without = layer_trees(ROLES["enclave"], inputs(tmp_path, engine=True))
    assert MODELS not in without


def test_copies_of_a_library_become_links(tmp_path: Path) -> None:
    trees = layer_trees(ROLES["enclave"], inputs(tmp_path, engine=True))
    found = dict(trees["libraries"].entries())
    assert found[f"{SITE}/llama_cpp/lib/libx.so"].content == b"same"
    assert found[f"{SITE}/llama_cpp/lib/libx.so.0"].content == b"libx.so"


def test_authorities_are_in_one_file_in_a_fixed_order(tmp_path: Path) -> None:
    trees = layer_trees(ROLES["relay"], inputs(tmp_path, engine=False))
    assert trees["system"].content(AUTHORITIES) == b"a\nb\n"
    with pytest.raises(FormatError, match="no certificates"):
        authorities(write_deb(tmp_path / "x.deb", {"usr/bin/x": b"x"}))


def test_layers_that_disagree_about_a_file_are_refused(tmp_path: Path) -> None:
    usual = inputs(tmp_path, engine=False)
    name = "curtilage/relay/__init__.py"
    other = write_wheel(tmp_path / "other-1-py3-none-any.whl", {name: b"theirs"})
    with pytest.raises(FormatError, match="disagree"):
        layer_trees(
            ROLES["relay"],
            Inputs(
                packages=usual.packages,
                wheels=[other],
                engine=None,
                model=[],
                own=usual.own,
            ),
        )


def test_every_role_says_how_its_program_is_started() -> None:
    for name, role in ROLES.items():
        found = settings_of(name)
        assert found.user == USER
        assert found.entry[-2:] == ("-m", role.module)
        assert found.environment["SSL_CERT_FILE"] == f"/{AUTHORITIES}"
        assert found.environment["PATH"] == "/nonexistent"
        assert found.labels["org.opencontainers.image.version"] == own_version()


def test_the_client_holds_the_pins_of_the_demo() -> None:
    """Its file is the demo's without some lines: one version of each everywhere."""
    client, demo = (
        read_pins((REQUIREMENTS / name).read_text("utf-8"))
        for name in ("client.txt", "demo.txt")
    )
    assert client.items() <= demo.items()
    assert {"presidio-analyzer", "onnxruntime", "aiohttp", "pyhpke"} <= set(client)


def test_the_lock_names_the_authorities_once() -> None:
    lock = parse_lock(LOCK.read_text("utf-8"))
    found = [each.name for each in lock if each.use is Use.AUTHORITIES]
    assert found == ["ca-certificates"]


# What is left out.


def test_dictionaries_are_those_of_the_languages_that_are_read() -> None:
    assert set(shrink.LANGUAGES) == {ENGLISH, *PACKS}


@pytest.mark.parametrize(
    ("path", "read"),
    [
        ("numpy/_core/multiarray.py", True),
        ("numpy/tests/test_x.py", False),
        ("numpy/linalg/tests/test_x.py", False),
        ("jinja2/tests.py", True),
        ("spacy/lang/en/__init__.py", True),
        ("spacy/lang/char_classes.py", True),
        ("spacy/lang/de/__init__.py", False),
        ("simplemma/strategies/dictionaries/data/de.plzma", True),
        ("simplemma/strategies/dictionaries/data/ru.plzma", False),
        ("blis/cy.cpython-311-x86_64-linux-gnu.so", True),
        ("blis/py.cpython-311-x86_64-linux-gnu.so", False),
        ("aiohttp/_http.pyx", False),
        ("x.pyi", False),
        ("thinc/backends/x.pxd", False),
        ("library/x.py", True),
        ("lib/x.so", False),
        ("stdnum/oui.dat", False),
        ("stdnum/eu/vat.py", True),
    ],
)
def test_what_no_program_reads_is_left_out(path: str, read: bool) -> None:
    assert shrink.is_read(path) is read


def native_library() -> bytes:
    spec = find_spec("markupsafe._speedups")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_bytes()


def test_a_library_without_its_sections_loads(tmp_path: Path) -> None:
    whole = native_library()
    less = shrink.without_sections(whole)
    assert len(less) < len(whole)
    path = tmp_path / "library.so"
    path.write_bytes(less)
    ctypes.CDLL(str(path))
    assert shrink.without_sections(less) == less


def test_other_files_stay_as_they_are() -> None:
    for content in (b"", b"text", b"\x7fELF\x01\x01 of 32 bits"):
        assert shrink.without_sections(content) == content


def test_a_library_that_is_cut_off_is_refused() -> None:
    whole = native_library()
    for length in (20, 63, 64, 100, len(whole) // 2):
        with pytest.raises(FormatError):
            shrink.without_sections(whole[:length])


# Bills of materials.


def test_a_bill_names_everything_and_is_valid(tmp_path: Path) -> None:
    parts = components(inputs(tmp_path, engine=True, model=True))
    text = sbom.write_sbom("curtilage-enclave", "0.1.0", DIGEST, parts)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = cast("dict[str, Any]", json.loads(text))
    listed = {each["purl"]: each for each in bill["components"]}
    assert set(listed) == {
        "pkg:deb/debian/ca-certificates@1:2.0%2Bx~1?arch=amd64",
        "pkg:deb/debian/zlib1g@1:2.0%2Bx~1?arch=amd64",
        "pkg:pypi/aiohttp@3",
        "pkg:pypi/curtilage@0.1.0",
        "pkg:pypi/llama-cpp-python@0.3",
        "pkg:pypi/llm-x@1",
    }
    for purl, each in listed.items():
        parsed = PackageURL.from_string(purl)
        assert (parsed.name, parsed.version) == (each["name"], each["version"])
    assert listed["pkg:pypi/aiohttp@3"]["licenses"] == [
        {"expression": "Apache-2.0 AND MIT"}
    ]
    wheel = hashlib.sha256((tmp_path / "aiohttp-3-py3-none-any.whl").read_bytes())
    assert listed["pkg:pypi/aiohttp@3"]["hashes"] == [
        {"alg": "SHA-256", "content": wheel.hexdigest()}
    ]
    (whole, *_) = bill["dependencies"]
    assert whole == {"ref": "curtilage-enclave", "dependsOn": sorted(listed)}
    described = bill["metadata"]["component"]
    assert described["hashes"] == [{"alg": "SHA-256", "content": DIGEST}]


def test_a_bill_is_the_same_every_time_and_another_for_another_image(
    tmp_path: Path,
) -> None:
    parts = components(inputs(tmp_path, engine=False))
    one = sbom.write_sbom("x", "1", DIGEST, parts)
    assert sbom.write_sbom("x", "1", DIGEST, list(reversed(parts))) == one
    other = sbom.write_sbom("x", "1", "cd" * 32, parts)
    serials = [json.loads(text)["serialNumber"] for text in (one, other)]
    assert len(set(serials)) == 2
    assert "timestamp" not in one


def test_every_image_has_an_archive_and_a_bill() -> None:
    assert outputs(["relay"]) == ["relay.tar", "relay.cdx.json", "images.json"]
