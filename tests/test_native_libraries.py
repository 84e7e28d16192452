# What the installed native libraries could do on their own, held against the table
# in docs/threat-model.md: no audit hook and no import contract sees native code.
import json
import re
import struct
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from curtilage.client.detection.worker import worker_environment
from curtilage.policy.document.load import load_profile

ROOT = Path(__file__).resolve().parents[1]
CODE = (
    *("sandbox", "wire", "attest", "inference", "policy", "client", "relay"),
    *("enclave_server", "transparency", "lab", "cli"),
    *("dev", "deploy", "benchmarks", "tools"),
)
TABLE = "## What native libraries could do"
REACHING = frozenset({"sockets", "resolver", "TLS", "HTTP"})
# Functions that a library wants from the system, as the dynamic linker sees them.
SYMBOLS = {
    "sockets": {"socket", "connect", "bind", "listen", "sendto", "sendmsg", "sendmmsg"},
    "resolver": {"getaddrinfo", "gethostbyname", "gethostbyname_r", "res_query"},
    "programs": {"execve", "execv", "execvp", "fork", "posix_spawn", "popen", "system"},
    "home": {"getpwuid", "getpwuid_r", "getpwnam", "getpwnam_r"},
}
# What is linked into it leaves no such symbol, but words. Our set-up strips the names
# of functions (tools/slim.py); names of source files and of protocols stay.
MARKS = {
    "TLS": (
        *(b"SSL_connect", b"mbedtls_ssl_handshake", b"gnutls_handshake"),
        *(b"rustls", b"ssl/ssl_lib.c", b"TLSv1.3", b"TLS 1.3"),
    ),
    "HTTP": (b"libcurl", b"curl_easy_", b"reqwest", b"http_proxy", b"User-Agent"),
}
# Hosts named in docstrings and messages, where a person may read on. Another one is
# a sign of its own: look who asks it before you add it here.
READ_BY_PEOPLE = """
aggregate.ee.engr.uky.edu arxiv.org brighton-webs.co.uk cbor.io cffi.readthedocs.io
cryptography.io devblogs.nvidia.com developers.google.com docs.nvidia.com
docs.python.org docs.rs docs.scipy.org en.wikipedia.org errors.pydantic.dev
gist.github.com github.com graphics.stanford.edu huggingface.co ieeexplore.ieee.org
mathworld.wolfram.com numpy.org papers.nips.cc personal.math.ubc.ca
pracrand.sourceforge.net pytorch.org spacy.io stat.ethz.ch tinyurl.com
web.archive.org www.biorxiv.org www.brighton-webs.co.uk www.cs.hmc.edu
www.inference.org.uk www.itl.nist.gov www.math.sci.hiroshima-u.ac.jp
www.microsoft.com www.opencompute.org www.pcg-random.org www.tensorflow.org
"""
HOST = re.compile(rb"https?://([a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,})")
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads ELF files")


def wanted_symbols(data: bytes) -> set[str]:
    """Return the names that an ELF file leaves for others to define."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no ELF file of 64 bits, little-endian")
    (at,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [
        struct.unpack_from("<IIQQQQIIQQ", data, at + size * number)
        for number in range(count)
    ]
    found: set[str] = set()
    for _, kind, _, _, begin, length, link, _, _, each in sections:
        if kind != 11:  # SHT_DYNSYM
            continue
        names = sections[link][4]
        for symbol in range(begin, begin + length, each):
            name, _, _, section = struct.unpack_from("<IBBH", data, symbol)
            if section == 0:  # SHN_UNDEF
                found.add(data[names + name : data.index(0, names + name)].decode())
    return found


def signs(data: bytes) -> set[str]:
    """Return what a library could do on its own, and the hosts that it names."""
    symbols = wanted_symbols(data)
    found = {sign for sign, names in SYMBOLS.items() if names & symbols}
    found |= {sign for sign, marks in MARKS.items() if any(m in data for m in marks)}
    hosts = {host.decode() for host in HOST.findall(data)}
    return found | (hosts - set(READ_BY_PEOPLE.split()))


# Required by packages and imported by nothing that runs: tools/requirements.sh. `pip
# install` brings them, so the table has a row where one could reach anybody.
LEFT_OUT = {"diskcache", "hf-xet", "setuptools"}


def product() -> dict[str, metadata.Distribution]:
    """Return what the product may load: this package and all it asks for, no tools."""
    extras = metadata.metadata("curtilage").get_all("Provides-Extra") or []
    found: dict[str, metadata.Distribution] = {}
    waiting = [Requirement(f"curtilage[{','.join(set(extras) - {'dev'})}]")]
    seen: set[str] = set()
    while waiting:
        wanted = waiting.pop()
        if str(wanted) in seen:
            continue
        seen.add(str(wanted))
        try:
            each = metadata.distribution(wanted.name)
        except metadata.PackageNotFoundError:
            if wanted.name not in LEFT_OUT:
                raise
            continue
        found[canonicalize_name(wanted.name)] = each
        for line in each.requires or ():
            below = Requirement(line)
            applies = [{"extra": extra} for extra in ("", *wanted.extras)]
            if below.marker is None or any(map(below.marker.evaluate, applies)):
                waiting.append(below)
    return found


def libraries(distribution: metadata.Distribution) -> Iterator[Path]:
    for file in distribution.files or ():
        path = Path(str(distribution.locate_file(file)))
        # tools/slim.py removes those that nothing loads.
        if re.search(r"\.so(\.|$)", file.name) and path.is_file():
            yield path


def table() -> dict[str, set[str]]:
    """Return each library of the docs' table with the signs that stand there."""
    text = (ROOT / "docs" / "threat-model.md").read_text("utf-8")
    section = text.partition(TABLE)[2].partition("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| `")]
    return {row[1].strip(" `"): set(re.findall("`(.+?)`", row[2])) for row in rows}


@linux_only
def test_the_table_says_what_the_installed_libraries_could_do() -> None:
    found = {
        name: set[str]().union(*(signs(path.read_bytes()) for path in paths))
        for name, each in product().items()
        if (paths := list(libraries(each)))
    }
    said = table()
    for name in LEFT_OUT - set(found):
        said.pop(name, None)
    assert {name: each for name, each in found.items() if each} == said


@linux_only
def test_no_native_library_of_the_detectors_could_reach_anybody() -> None:
    code = """
import json, sys
from curtilage.client.detection.detectors.all import scanner_of
from curtilage.policy.document.detection_plan import DetectionPlan
scanner_of(DetectionPlan.from_fields(json.load(sys.stdin))).scan(["Anna Miller, HIV"])
print(open("/proc/self/maps").read())
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(load_profile("default").plan.to_fields()),
        env=worker_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    mapped = {line.split()[-1] for line in done.stdout.splitlines() if line}
    could = {
        name: reaching
        for name, each in product().items()
        for path in libraries(each)
        if str(path) in mapped and (reaching := signs(path.read_bytes()) & REACHING)
    }
    loaded = [path for path in mapped if "onnxruntime" in path]
    assert loaded, "the embedded model was not loaded: nothing was looked at"
    assert could == {}


@linux_only
def test_a_collector_that_is_linked_in_is_seen() -> None:
    native = next(libraries(metadata.distribution("regex"))).read_bytes()
    assert signs(native) == set()
    host = b"\0https://mobile.events.data.microsoft.com/OneCollector/1.0\0"
    assert signs(native + host) == {"mobile.events.data.microsoft.com"}
    assert signs(native + b"\0libcurl/8.1\0") == {"HTTP"}


def test_the_runtime_is_of_a_version_without_a_collector() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = map(Requirement, project["optional-dependencies"]["pii"])
    bound = next(each for each in wanted if each.name == "onnxruntime")
    assert not list(bound.specifier.filter(["1.29.0", "1.29.1", "1.31.1", "2.0"]))
    pinned = [
        line.split()[0].rstrip("\\")
        for file in (ROOT / "requirements").glob("*.txt")
        for line in file.read_text("utf-8").splitlines()
        if line.startswith("onnxruntime")
    ]
    # In what runs, in the developers' set, in the training's and in the client's image.
    assert set(pinned) == {"onnxruntime==1.28.0"}
    assert len(pinned) == 4


IMPORTED = re.compile(r"""import onnxruntime|from onnxruntime|module\("onnxruntime""")


def test_the_runtime_is_set_to_report_nothing_before_each_import() -> None:
    importing = {
        path: text
        for folder in CODE
        for path in (ROOT / folder).rglob("*.py")
        if IMPORTED.search(text := path.read_text("utf-8"))
    }
    assert {path.name for path in importing} == {
        *("embedded.py", "export.py", "measure.py", "topic_features.py")
    }
    for path, text in importing.items():
        before = text[: IMPORTED.search(text).start()]  # type: ignore[union-attr]
        settings = '"ORT_DISABLE_TELEMETRY"] = "1"', "os.environ.update(UNREPORTED)"
        assert any(line in before for line in settings), path.name
