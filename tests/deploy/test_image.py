"""The image's builder: every input pinned, every output the same twice.

What needs packages of Debian and minutes of time is in ``test_image_build``; here
everything is made by hand, so that it runs everywhere.
"""

import hashlib
import io
import itertools
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from deploy.image import packages, wheels
from deploy.image.cpio import write_cpio
from deploy.image.debs import add_package, find_in_package
from deploy.image.errors import (
    FormatError,
    MismatchError,
    MissingError,
)
from deploy.image.kernel import Kernel, depends, read_kernel
from deploy.image.options import ROOT
from deploy.image.rootfs import is_wanted
from deploy.image.tree import Kind, Tree
from hypothesis import given
from hypothesis import strategies as st

from support.image_parts import kernel_module, write_deb, write_wheel

LOCK = ROOT / "deploy" / "image" / "packages.lock"
# The archive.


def small_tree(order: list[tuple[str, bytes]]) -> Tree:
    tree = Tree()
    for path, content in order:
        tree.add_file(path, content, program=path == "init")
    tree.add_link("usr/lib/libx.so", "libx.so.1")
    return tree


FILES = [("init", b"#!x"), ("etc/a", b""), ("etc/a-b", b"12345"), ("lib/z/y", b"zz")]


def archive(tree: Tree, mtime: int = 1_700_000_000) -> bytes:
    return b"".join(write_cpio(tree, mtime=mtime))


def read_cpio(data: bytes) -> dict[str, tuple[list[int], bytes]]:
    """Read a newc archive by the kernel's description of it."""
    found: dict[str, tuple[list[int], bytes]] = {}
    at = 0
    while True:
        assert data[at : at + 6] == b"070701"
        numbers = data[at + 6 : at + 110].decode("ascii")
        fields = [int(numbers[i : i + 8], 16) for i in range(0, 104, 8)]
        at += 110
        name = data[at : at + fields[11]]
        assert name.endswith(b"\0")
        at += fields[11]
        at += -at % 4
        content = data[at : at + fields[6]]
        at += fields[6]
        at += -at % 4
        if name == b"TRAILER!!!\0":
            assert at == len(data)
            return found
        found[name[:-1].decode()] = (fields, content)


def test_archive_is_the_same_whatever_the_order_of_making() -> None:
    first = archive(small_tree(FILES))
    for order in itertools.permutations(FILES):
        assert archive(small_tree(list(order))) == first


def test_archive_says_what_was_put_in() -> None:
    found = read_cpio(archive(small_tree(FILES)))
    contents = {name: content for name, (_, content) in found.items()}
    assert contents["etc/a-b"] == b"12345"
    assert contents["usr/lib/z/y"] == b"zz"
    assert contents["lib"] == b"usr/lib"
    modes = {name: fields[1] for name, (fields, _) in found.items()}
    assert modes["init"] == 0o100755
    assert modes["etc/a"] == 0o100644
    assert modes["etc"] == 0o040755
    assert modes["usr/lib/libx.so"] == 0o120777


def test_archive_carries_nothing_of_the_machine() -> None:
    found = read_cpio(archive(small_tree(FILES)))
    numbers = [fields for fields, _ in found.values()]
    assert {tuple(fields[2:4]) for fields in numbers} == {(0, 0)}  # owner, group
    assert {fields[5] for fields in numbers} == {1_700_000_000}
    assert [fields[0] for fields in numbers] == list(range(1, len(numbers) + 1))


def test_archive_has_directories_before_what_lies_in_them() -> None:
    names = list(read_cpio(archive(small_tree(FILES))))
    for name in names:
        parent = name.rpartition("/")[0]
        assert not parent or names.index(parent) < names.index(name)


@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=3).map(lambda name: f"f/{name}"),
        st.binary(max_size=9),
        max_size=6,
    )
)
def test_archive_is_read_back_whole(files: dict[str, bytes]) -> None:
    tree = Tree()
    for path, content in files.items():
        tree.add_file(path, content)
    found = read_cpio(archive(tree))
    assert {n: c for n, (_, c) in found.items() if n.startswith("f/")} == files


def test_archive_refuses_a_time_beyond_32_bits() -> None:
    with pytest.raises(FormatError):
        archive(Tree(), 2**32)


@pytest.mark.parametrize("path", ["", "/", "a/../../b", "..", "a\0b"])
def test_tree_refuses_paths_that_lead_out(path: str) -> None:
    with pytest.raises(FormatError):
        Tree().add_file(path, b"")


def test_tree_refuses_two_contents_of_one_path() -> None:
    tree = Tree()
    tree.add_file("a", b"1")
    tree.add_file("a", b"1")
    with pytest.raises(FormatError):
        tree.add_file("a", b"2")
    with pytest.raises(FormatError):
        tree.add_file("a/b", b"1")


# Debian packages.


def test_package_gives_what_is_wanted_and_no_more(tmp_path: Path) -> None:
    files = {
        "usr/bin/python3.11": b"program",
        "usr/bin/sh": b"shell",
        "lib/x86_64-linux-gnu/libc.so.6": b"library",
        "usr/lib/python3.11/os.py": b"module",
        "usr/lib/python3.11/test/regrtest.py": b"tests",
        "usr/share/doc/x/copyright": b"words",
    }
    tree = Tree()
    assert add_package(tree, write_deb(tmp_path / "x.deb", files), is_wanted) == 3
    kept = {path for path, entry in tree.entries() if entry.kind is not Kind.DIRECTORY}
    assert kept - {"bin", "sbin", "lib", "lib64"} == {
        "usr/bin/python3.11",
        "usr/lib/x86_64-linux-gnu/libc.so.6",
        "usr/lib/python3.11/os.py",
    }


def test_package_with_a_device_node_is_refused(tmp_path: Path) -> None:
    deb = write_deb(tmp_path / "x.deb", {}, odd="dev/null")
    with pytest.raises(FormatError):
        add_package(Tree(), deb, lambda _: True)


@pytest.mark.parametrize("content", [b"", b"!<arch>\n", b"!<arch>\nshort", b"PK\3\4"])
def test_what_is_no_package_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.deb"
    path.write_bytes(content)
    with pytest.raises(FormatError):
        add_package(Tree(), path, lambda _: True)


def test_one_file_is_found_by_its_ending_and_only_if_it_is_one(tmp_path: Path) -> None:
    deb = write_deb(tmp_path / "x.deb", {"a/OVMF.fd": b"1", "b/x": b"2", "c/x": b"3"})
    assert find_in_package(deb, "/OVMF.fd") == b"1"
    for ending in ("/x", "/none"):
        with pytest.raises(FormatError):
            find_in_package(deb, ending)


# The lock file.


def test_lock_names_everything_that_is_wanted_and_nothing_else() -> None:
    found = packages.parse_lock(LOCK.read_text("utf-8"))
    for use, suites in packages.WANTED.items():
        names = {package.name for package in found if package.use is use}
        wanted = {name for listed in suites.values() for name in listed}
        if use is packages.Use.KERNEL:
            assert len(names) == 1
            assert names.pop().startswith("linux-image-6.")
        else:
            assert names == wanted


def test_lock_names_no_host() -> None:
    text = LOCK.read_text("utf-8")
    assert "://" not in text
    assert not any(word in text for word in (".org", ".com", ".net", "/"))


Change = Callable[[str], str]


def without_kernel(text: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("kernel "))


def backwards(text: str) -> str:
    return "".join(reversed(text.splitlines(keepends=True)))


def replacing(old: str, new: str) -> Change:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return change


CHANGES: dict[str, Change] = {
    "twice": lambda text: text + text.splitlines()[-1] + "\n",
    "two spaces": replacing("root libc6 ", "root  libc6 "),
    "unknown use": replacing("tool zstd ", "zool zstd "),
    "five words": replacing("tool zstd ", "tool zstd 0 "),
    "unsorted": backwards,
    "cut": lambda text: text.rstrip("\n"),
    "no kernel": without_kernel,
    "capitals": replacing("b", "B"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_lock_that_is_not_in_its_one_form_is_refused(change: Change) -> None:
    with pytest.raises(FormatError):
        packages.parse_lock(change(LOCK.read_text("utf-8")))


def locked(content: bytes) -> packages.Package:
    digest = hashlib.sha256(content).hexdigest()
    return packages.Package(use=packages.Use.ROOT, name="x", version="1", sha256=digest)


def test_cached_package_that_was_changed_is_refused(tmp_path: Path) -> None:
    package = locked(b"good")
    place = tmp_path / f"{package.sha256}.deb"
    place.write_bytes(b"good")
    assert packages.fetch_packages([package], tmp_path, sources="") == {package: place}
    place.write_bytes(b"evil")
    with pytest.raises(MismatchError):
        packages.fetch_packages([package], tmp_path, sources="")


def test_package_that_apt_brought_must_be_the_locked_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Apt:
        def __init__(self, folder: Path, sources: str) -> None:
            del folder, sources

        def update(self) -> None:
            """Nothing to fetch."""

        def download(self, names: list[str], folder: Path) -> None:
            assert names == ["x=1"]
            (folder / "x_1_amd64.deb").write_bytes(b"evil")

    monkeypatch.setattr(packages, "PrivateApt", Apt)
    with pytest.raises(MismatchError):
        packages.fetch_packages([locked(b"good")], tmp_path, sources="")
    found = packages.fetch_packages([locked(b"evil")], tmp_path, sources="")
    assert [path.read_bytes() for path in found.values()] == [b"evil"]


def test_sources_follow_the_mirrors_of_this_machine() -> None:
    shown = (
        "Debian|http://mirror.example/debian/|bookworm\n"
        "Debian|http://mirror.example/sec/|bookworm-security\n"
        "Other|http://other.example/|stable\n"
    )
    lines = packages.sources_for(packages.mirrors_of(shown)).splitlines()
    assert len(lines) == len(packages.SUITES)
    for line, suite in zip(lines, packages.SUITES, strict=True):
        folder = "sec" if suite.endswith("-security") else "debian"
        assert f" http://mirror.example/{folder}/ {suite} main" in line
        assert line.startswith("deb [signed-by=")


def test_sources_need_a_debian_mirror() -> None:
    with pytest.raises(MissingError):
        packages.mirrors_of("Ubuntu|http://mirror.example/|noble\n")


def test_newest_version_is_taken_from_the_release_that_was_asked() -> None:
    shown = (
        "x:\n  Installed: (none)\n  Candidate: 3\n  Version table:\n"
        "     3 500\n        500 http://m.example trixie/main amd64 Packages\n"
        "     2 500\n        500 http://m.example bookworm-security/main Packages\n"
        "     1 500\n        500 http://m.example bookworm/main amd64 Packages\n"
    )
    assert packages.newest_in(shown, "bookworm") == {"x": "2"}
    assert packages.newest_in(shown, "trixie") == {"x": "3"}
    assert packages.newest_in(shown, "forky") == {}


# Wheels.


def test_wheel_is_unpacked_where_python_finds_it(tmp_path: Path) -> None:
    files = {
        "x/__init__.py": b"1",
        "x-1.data/platlib/y.so": b"2",
        "x-1.data/scripts/run": b"3",
        "x-1.dist-info/METADATA": b"4",
        "x/other/z.py": b"5",
    }
    tree = Tree()
    wheel = write_wheel(tmp_path / "x-1-py3-none-any.whl", files)
    wheels.add_wheel(tree, wheel, skip=("x/other",))
    kept = {p.removeprefix(wheels.SITE) for p, e in tree.entries() if e.content}
    assert kept >= {"/x/__init__.py", "/y.so", "/x-1.dist-info/METADATA"}
    assert not any("run" in path or "z.py" in path for path in kept)


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../b"])
def test_wheel_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    wheel = write_wheel(tmp_path / "x-1-py3-none-any.whl", {name: b""})
    with pytest.raises(FormatError):
        wheels.add_wheel(Tree(), wheel)


def test_what_is_no_wheel_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x-1-py3-none-any.whl"
    path.write_bytes(b"not a zip file")
    with pytest.raises(FormatError):
        wheels.add_wheel(Tree(), path)


def test_pins_of_the_enclave_are_read() -> None:
    pins = wheels.read_pins((ROOT / "requirements" / "enclave.txt").read_text("utf-8"))
    assert {"aiohttp", "cryptography", "cbor2", "dcap-qvl"} <= set(pins)
    assert all(pins.values())


@pytest.mark.parametrize("line", ["x==1\n", "x>=1 --hash=sha256:" + "0" * 64, "x\n"])
def test_requirement_without_version_or_hash_is_refused(line: str) -> None:
    with pytest.raises(FormatError):
        wheels.read_pins(line)


def test_wheel_that_is_not_as_pinned_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    wheel = write_wheel(folder / "x_y-1-py3-none-any.whl", {"x": b"1"})
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    requirements = tmp_path / "r.txt"
    requirements.write_text(f"X.y==1 --hash=sha256:{digest}\n")
    assert wheels.fetch_wheels(requirements, folder) == [wheel]
    requirements.write_text(f"x-y==1 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(MismatchError):
        wheels.fetch_wheels(requirements, folder)


# The kernel.


def kernel() -> Kernel:
    modules = {"a": "b,c", "b": "c,built-in", "c": "", "odd": "missing"}
    packed = {name: kernel_module(needs) for name, needs in modules.items()}
    return Kernel(
        image=b"", release="6", packed=packed, built_in=frozenset({"built_in"})
    )


def test_modules_come_after_what_they_need() -> None:
    assert [name for name, _ in kernel().modules(["a", "c"])] == ["c", "b", "a"]


def test_module_that_is_nowhere_is_refused() -> None:
    for name in ("nothing", "odd"):
        with pytest.raises(FormatError):
            kernel().modules([name])


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(FormatError):
        depends(b"no notes")


def test_kernel_is_read_out_of_its_package(tmp_path: Path) -> None:
    files = {
        "boot/vmlinuz-6.12-x": b"image",
        "usr/lib/modules/6.12-x/kernel/net/virtio-net.ko.xz": kernel_module("failover"),
        "usr/lib/modules/6.12-x/modules.builtin": b"kernel/net/core/failover.ko\n",
    }
    found = read_kernel(write_deb(tmp_path / "k.deb", files))
    assert (found.image, found.release) == (b"image", "6.12-x")
    assert [name for name, _ in found.modules(["virtio_net"])] == ["virtio_net"]


def test_package_with_two_kernels_is_refused(tmp_path: Path) -> None:
    files = {"boot/vmlinuz-1": b"1", "boot/vmlinuz-2": b"2"}
    with pytest.raises(FormatError):
        read_kernel(write_deb(tmp_path / "k.deb", files))


def test_packages_are_read_as_they_come_from_debian(tmp_path: Path) -> None:
    """The fixture's writer is Python's; its members are those of deb(5)."""
    raw = write_deb(tmp_path / "x.deb", {"a": b"1"}).read_bytes()
    at = raw.index(b"data.tar.xz") + 60
    with tarfile.open(fileobj=io.BytesIO(raw[at:]), mode="r:xz") as tar:
        assert tar.getnames() == ["./a"]
