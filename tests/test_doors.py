"""No module reaches for the network, a process or hidden code but by a named door.

The doors stand in ``pyproject.toml``, ``[tool.curtilage.doors]``. This proves
what the source says. Against code that means harm (``vars(os)["sys" "tem"]``)
and against native libraries stand the kernel's walls, not these.
"""

import ast
import asyncio
import importlib.machinery
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast, get_args

import grimp
import pytest
from importlinter import configuration
from tools.import_contracts import DoorsContract

from curtilage.client.chat.query import single_query
from curtilage.policy.decision.permit import Binding
from curtilage.policy.document.load import load_profile
from support.doors import (
    CONTRACTS,
    DOORS,
    ROOT,
    TOOL,
    Use,
    banned,
    module_of,
    parts,
    sources,
    uses,
)

BANNED = set(
    cast("dict[str, object]", TOOL["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"])
) - {"pickle", "random"}  # those are no ways out
AT_HOME = next(each for each in CONTRACTS if each.get("id") == "home")
APART = next(each for each in CONTRACTS if each.get("id") == "apart")
CORE = next(each for each in CONTRACTS if each.get("id") == "core")
DETECTORS = "curtilage.client.detection.detectors"

# What is planted, and what it is called when it is found. Ruff sees these, so that
# `make lint` goes red by itself:
LINTED = {
    "import _ctypes": "_ctypes",
    "import builtins": "builtins",
    "import cffi": "cffi",
    "import ctypes": "ctypes",
    "import ctypes.util as tools": "ctypes",
    "import ftplib": "ftplib",
    "import http.client": "http.client",
    "import http.server": "http.server",
    "import httpx": "httpx",
    "import imaplib": "imaplib",
    "import multiprocessing": "multiprocessing",
    "import poplib": "poplib",
    "import pty": "pty",
    "import requests": "requests",
    "import runpy": "runpy",
    "import smtplib": "smtplib",
    "import socket": "socket",
    "import socketserver": "socketserver",
    "import ssl": "ssl",
    "import subprocess": "subprocess",
    "import urllib.request": "urllib.request",
    "import urllib3": "urllib3",
    "import webbrowser": "webbrowser",
    "import xmlrpc.client": "xmlrpc",
    "import _socket": "_socket",
    "from asyncio import streams": "asyncio.streams",
    "from http import client": "http.client",
    "from importlib import import_module": "importlib.import_module",
    "from multiprocessing.connection import Client": "multiprocessing",
    "from os import system as clear": "os.system",
    "from urllib import request as parse": "urllib.request",
    "import aiohttp; aiohttp.ClientSession().post('http://h')": "aiohttp.ClientSession",
    "import aiohttp as web; web.request('GET', 'http://h')": "aiohttp.request",
    "from aiohttp import TCPConnector": "aiohttp.TCPConnector",
    "from aiohttp.client import ClientSession": "aiohttp.client",
    "from importlib.metadata import EntryPoint": "importlib.metadata.EntryPoint",
    "import numpy as np; np.loadtxt('http://h')": "numpy.loadtxt",
    "import numpy; numpy.lib.npyio.DataSource()": "numpy.lib",
    "import asyncio; asyncio.open_connection('h', 1)": "asyncio.open_connection",
    "import asyncio as a; a.start_server": "asyncio.start_server",
    "import asyncio; asyncio.streams.open_connection": "asyncio.streams",
    "import asyncio; asyncio.open_unix_connection": "asyncio.open_unix_connection",
    "import asyncio; asyncio.create_subprocess_exec": "asyncio.create_subprocess_exec",
    "from concurrent.futures import process": "concurrent.futures.process",
    "import importlib; importlib.import_module('socket')": "importlib.import_module",
    "import importlib.util as u; u.module_from_spec": "importlib.util.module_from_spec",
    "import numpy as np; np.ctypeslib.load_library": "numpy.ctypeslib.load_library",
    "import os; os.system('curl h')": "os.system",
    "import os as o; run = o.posix_spawn": "os.posix_spawn",
    "import sys; sys.modules['socket']": "sys.modules",
    "import uuid; uuid.getnode()": "uuid.getnode",
}
# Ruff does not see these; the first test below does.
IN_THE_SYNTAX = {
    "__import__('socket')": "__import__",
    "eval('1')": "eval",
    "exec('import socket')": "exec",
    "compile('', '', 'exec')": "compile",
    "globals()['socket']": "globals",
    "__builtins__": "__builtins__",
    "__spec__.loader.load_module('socket')": "load_module",
    "import os; os.__dict__['system']": "__dict__",
    "import asyncio; asyncio.base_events.socket": "socket",
    "from asyncio import events; events.subprocess": "subprocess",
    "from email.utils import socket": "socket",
    "from shutil import os": "os",
    "from os import sys": "sys",
    "import contextlib; contextlib.os.popen": "os",
    "from curtilage.client.detection.worker import subprocess": "subprocess",
    "from curtilage.inference.native import ctypes": "ctypes",
    "import importlib": "importlib",
    "import posix": "posix",
    "import nobody_has_looked_at_this": "nobody_has_looked_at_this",
    "from email import message": "email",
    "object().create_connection": "create_connection",
    "object().create_datagram_endpoint": "create_datagram_endpoint",
    "object().sock_connect": "sock_connect",
    "object().subprocess_exec": "subprocess_exec",
    "object().getaddrinfo": "getaddrinfo",
}


def test_each_module_uses_the_doors_it_is_named_for_and_no_other() -> None:
    found = defaultdict[str, set[str]](set)
    for use in uses(ROOT):
        found[use.module].add(use.name)
    named = {module: set(doors) for module, doors in DOORS.items()}
    assert dict(found) == named, "see [tool.curtilage.doors] in pyproject.toml"


class Planted:
    """A copy of the parts: every plant in every module, bare and excused."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bare: list[Use] = []
        self.excused: list[Use] = []
        shutil.copy(ROOT / "pyproject.toml", root)
        for path in sources(ROOT):
            copy = root / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text("\n".join(self._planted(path)), "utf-8")

    def _planted(self, path: Path) -> list[str]:
        module, lines = module_of(path, ROOT), path.read_text("utf-8").split("\n")
        for plant, name in LINTED.items():
            lines.append(plant)
            self.bare.append(Use(module, len(lines), name))
        lines.append("def planted():")
        for plant, name in (LINTED | IN_THE_SYNTAX).items():
            lines.append(f"    {plant}  # noqa")
            self.excused.append(Use(module, len(lines), name))
        return lines


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return Planted(tmp_path_factory.mktemp("planted"))


def test_lint_sees_what_is_planted_in_any_module(planted: Planted) -> None:
    seen = set(banned(planted.root, excused=False))
    assert set(planted.bare) - seen == set()


def test_no_excuse_opens_a_door_that_is_not_named(planted: Planted) -> None:
    seen = uses(planted.root)
    assert set(planted.excused) - seen == set()


def test_each_plant_is_in_each_module(planted: Planted) -> None:
    """The two above would pass on an empty tree."""
    assert len(planted.bare) == len(LINTED) * len(sources(ROOT))
    assert {part.parent.name for part in parts(planted.root)} >= {
        "client",
        "policy",
        "wire",
    }


def _calls_out(tree: ast.AST) -> set[str]:
    """Return the clocks and files that a module calls; ``x.open`` may be HPKE's."""
    calls = {"now", "utcnow", "today", "read_text", "read_bytes"}
    calls |= {"write_text", "write_bytes"}
    found = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="open")):
                found.add("open")
            case ast.Call(func=ast.Attribute(attr=name)) if name in calls:
                found.add(name)
            case ast.Attribute(value=ast.Name(id="datetime" | "date"), attr="now"):
                found.add("now")
            case ast.Attribute(value=ast.Name(id="io" | "os"), attr="open"):
                found.add("open")
            case _:
                pass
    return found


def test_the_core_calls_no_clock_and_opens_no_file() -> None:
    """import-linter sees ``time``; neither ``datetime.now`` nor ``open``."""
    core = tuple(cast("list[str]", CORE["source_modules"]))
    found = {
        module: calls
        for path in sources(ROOT)
        if (module := module_of(path, ROOT)).startswith(core)
        if (calls := _calls_out(ast.parse(path.read_text("utf-8"))))
    }
    # Words, what is broken, a policy, the cases next to a profile, templates.
    assert found == {
        "curtilage.client.conversation.redaction": {"read_text"},
        "curtilage.policy.breaks": {"read_text"},
        "curtilage.policy.cases": {"read_text"},
        "curtilage.policy.document.load": {"read_text"},
        "curtilage.relay.render": {"read_text"},
    }


@pytest.mark.parametrize(
    "plant",
    [
        "datetime.now",
        "dt.datetime.now(UTC)",
        "open('f')",
        "os.open('f', 0)",
        "Path('f').read_bytes()",
    ],
)
def test_a_clock_or_a_file_is_seen(plant: str) -> None:
    assert _calls_out(ast.parse(plant))


CLIENT = "curtilage.client"
REMOTE = "curtilage.client.remote"
PERMITS = "curtilage.policy.decision.permit"
MOST_BEHIND_THE_SEAL = 47
AT_THE_DESK = {
    "mint": {f"{REMOTE}.requests"},
    "mint_again": {f"{REMOTE}.requests"},
    "mint_on_premises": {"curtilage.client.answering.tiers.on_premises"},
    "mint_without_query": {f"{REMOTE}.requests", f"{REMOTE}.keys"},
    "redeem": {
        f"{REMOTE}.seal",
        f"{REMOTE}.keys",
        "curtilage.client.on_premises.server",
    },
    # Of which kind: minting without a query, and redeeming, take a binding of that
    # kind. It is built, never read from a permit (``binding``).
    "Permit": {PERMITS},
    "binding": {PERMITS},
    "EgressBinding": {PERMITS, f"{REMOTE}.seal"},
    "ServerBinding": {PERMITS, "curtilage.client.on_premises.server"},
    "CoverBinding": {f"{REMOTE}.requests", f"{REMOTE}.seal"},
    "ChallengeBinding": {f"{REMOTE}.requests", f"{REMOTE}.seal"},
    "FetchBinding": {f"{REMOTE}.keys"},
    "PermitDesk": {"curtilage.client.session", "curtilage.cli.attest.show"},
    # From an inspection follows a decision, from that an ``Allowed``, and from that
    # the permit: one link further up, the same holds.
    "decide": {
        "curtilage.client.answering.pipeline",
        "curtilage.client.conversation.narrowing",
    },
    "Inspection": {"curtilage.client.detection.inspection"},
    "INSPECTION_DOOR": {
        "curtilage.client.detection.inspection",
        "curtilage.policy.decision.decide",
    },
    "VERIFY_DOOR": {"curtilage.attest.verify", "curtilage.attest.verified_key"},
    "moved_to": {"curtilage.client.pseudonyms.deidentified"},
    "Deidentified": {"curtilage.client.pseudonyms.deidentified"},
}
DECIDES = "curtilage.policy.decision.decide"
# Only by these names can an inspection or a permit come about. Annotations name them as
# well, so only calls count.
_BINDINGS = {each.__name__ for each in get_args(Binding)}
_CALLED = {"Inspection", "Deidentified", "PermitDesk", "Permit", *_BINDINGS}
_IMPORTED = {"decide", "INSPECTION_DOOR"}
_DOORS = {"INSPECTION_DOOR", "VERIFY_DOOR"}


def _at_the_desk(tree: ast.AST) -> Iterator[str]:
    """Yield what a module does that only some may: mint, redeem, decide, inspect."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom() | ast.Import():
                yield from _imported(node)
            case ast.Assign(value=ast.Name(id=name)) if name in _CALLED:
                yield name
            case ast.Name(id=name) if name in _DOORS:
                yield name
            case ast.Attribute(attr=name) | ast.Call(func=ast.Name(id=name)):
                one_by_one = _CALLED | _DOORS | {"moved_to", "binding"}
                if name.startswith(("mint", "redeem")) or name in one_by_one:
                    yield name
            case _:
                pass


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Yield what an import brings along, or hides under another name."""
    source = node.module if isinstance(node, ast.ImportFrom) else None
    for each in node.names:
        # The whole module at once: then anything in it.
        if DECIDES in {each.name, f"{source}.{each.name}"} or each.name == "*":
            yield from _IMPORTED
        elif (source == DECIDES and each.name in _IMPORTED) or each.name in _DOORS:
            yield each.name
        # Under another name, a call would not be known for what it is.
        if each.asname and each.name in _CALLED:
            yield each.name


def _who_is_at_the_desk(root: Path) -> dict[str, set[str]]:
    found = defaultdict[str, set[str]](set)
    for path in sources(root):
        for name in _at_the_desk(ast.parse(path.read_text("utf-8"))):
            found[name].add(module_of(path, root))
    return dict(found)


def test_a_permit_is_minted_in_one_place_and_redeemed_in_one() -> None:
    """So what verifies, hedges, retries or queues has nothing to mint with."""
    assert _who_is_at_the_desk(ROOT) == AT_THE_DESK


# Eight lines that let any text leave: nothing was found in it, says who wrote them.
BY_ITSELF = """
from curtilage.policy.decision.decide import Inspection, decide


def planted(rulebook, query):
    inspection = Inspection(
        findings=(), payload_digest=query.payload_digest(), messages=1
    )
    return decide(rulebook, inspection).allowed
"""
# The same where each word alone must show it, or the word is hidden.
AT_THE_DESK_BY_ITSELF = {
    BY_ITSELF: {"decide", "Inspection"},
    "from curtilage.policy.decision.decide import decide as assess": {"decide"},
    "from curtilage.policy.decision import decide as d": {"decide", "INSPECTION_DOOR"},
    "import curtilage.policy.decision.decide as d": {"decide", "INSPECTION_DOOR"},
    "from curtilage.policy.decision.decide import INSPECTION_DOOR as D": {
        "INSPECTION_DOOR"
    },
    "from curtilage.policy.decision.decide import Inspection as I": {"Inspection"},
    "from curtilage.policy.decision.decide import Inspection\nI = Inspection": {
        "Inspection"
    },
    "from curtilage.client.detection import inspection as i\ni.INSPECTION_DOOR": {
        "INSPECTION_DOOR"
    },
    "from curtilage.client.detection import inspection as i\ni.Inspection": {
        "Inspection"
    },
    "from curtilage.attest.verified_key import VERIFY_DOOR as D": {"VERIFY_DOOR"},
    "from curtilage.attest import verified_key as v\nv.VERIFY_DOOR": {"VERIFY_DOOR"},
    "harmless.moved_to(query.payload_digest())": {"moved_to"},
    "Deidentified(query=kept, reading=harmless)": {"Deidentified"},
    "self._desk.redeem(permit, permit.binding, now_ms=0)": {"redeem", "binding"},
    "EgressBinding(payload=b'', key=b'', release=b'', policy='')": {"EgressBinding"},
    "from curtilage.policy.decision.permit import FetchBinding as F": {"FetchBinding"},
    "from curtilage.policy.decision import permit as p\np.Permit": {"Permit"},
    "from curtilage.policy.decision.permit import Permit\nP = Permit": {"Permit"},
    "self._desk.mint_without_query(cover, now_ms=0)": {"mint_without_query"},
}


@pytest.mark.parametrize("plant", AT_THE_DESK_BY_ITSELF)
def test_who_decides_on_an_inspection_of_its_own_is_seen(
    plant: str, tmp_path: Path
) -> None:
    """Planted in a copy of the module that asks the enclave."""
    asks = ROOT / "client/curtilage/client/answering/tiers/enclave.py"
    copy = tmp_path / asks.relative_to(ROOT)
    copy.parent.mkdir(parents=True)
    clean = asks.read_text("utf-8")
    copy.write_text(clean, "utf-8")
    before = _who_is_at_the_desk(tmp_path)
    copy.write_text(f"{clean}\n{plant}\n", "utf-8")
    seen = _who_is_at_the_desk(tmp_path)
    new = {name for name in seen if seen[name] != before.get(name)}
    assert new == AT_THE_DESK_BY_ITSELF[plant]


def test_what_is_planted_makes_no_inspection_when_it_runs() -> None:
    """The types refuse it as well, whatever the syntax shows."""
    lines: dict[str, Any] = {}
    exec(BY_ITSELF, lines)  # noqa: S102 - these very lines
    planted: Callable[[object, object], object] = lines["planted"]
    with pytest.raises(TypeError, match="door"):
        planted(load_profile("default").rulebook, single_query("Is it warm?"))


def test_the_list_holds_all_of_its_kind() -> None:
    kinds = ("exec", "fork", "popen", "posix_spawn", "spawn", "startfile", "system")
    wanted = {f"os.{name}" for name in dir(os) if name.startswith(kinds)}
    wanted |= {f"asyncio.{name}" for name in asyncio.subprocess.__all__}
    wanted |= {
        f"asyncio.{name}"
        for name in asyncio.streams.__all__
        if name.startswith(("open_", "start_"))
    }
    assert wanted <= BANNED


def test_the_parts_hold_no_code_that_these_tests_do_not_read() -> None:
    suffixes = set(importlib.machinery.all_suffixes()) - {".py", ".pyc"}
    unread = [
        path
        for part in parts(ROOT)
        for path in part.rglob("*")
        if path.suffix in suffixes | {".pth", ".pyw", ".pyx", ".ipynb"}
    ]
    assert unread == []


def test_the_contract_at_home_forbids_every_module_on_the_list() -> None:
    """But for those of which a part is harmless: import-linter sees roots alone."""
    roots = {name.partition(".")[0] for name in BANNED}
    harmless = {name.partition(".")[0] for name in TOOL["curtilage"]["harmless"]}
    assert roots - harmless <= set(AT_HOME["forbidden_modules"])


def test_what_seals_is_read_with_few_files() -> None:
    """Imports at run time, by any detour; it knows neither query nor verifier."""
    graph = grimp.build_graph(
        *TOOL["importlinter"]["root_packages"],
        cache_dir=None,
        exclude_type_checking_imports=True,
    )
    behind = graph.find_upstream_modules(f"{REMOTE}.seal")
    assert len(behind) + 1 <= MOST_BEHIND_THE_SEAL
    assert "curtilage.attest.verify" not in behind
    asks = {REMOTE, *graph.find_descendants(REMOTE)}
    known = asks.union(*map(graph.find_upstream_modules, asks))
    of_texts = (
        "chat.query",
        "chat.openai",
        "chat.options",
        "conversation",
        "rout",
        "answering",
        "pseudonyms",
    )
    starts = tuple(f"{CLIENT}.{name}" for name in of_texts)
    assert not {name for name in known if name.startswith(starts)}


def test_no_module_of_the_client_is_left_out_of_the_contract_at_home() -> None:
    """A new module is at home, or it asks the enclave; or it has no place yet."""
    graph = grimp.build_graph(
        *TOOL["importlinter"]["root_packages"],
        include_external_packages=True,
        cache_dir=None,
    )
    held = set[str]()
    for source in cast("list[str]", AT_HOME["source_modules"]):
        inside = {source, *graph.find_descendants(source)}
        held |= inside.union(*map(graph.find_upstream_modules, inside))
    asks = graph.find_descendants("curtilage.client.remote")  # by its folder
    for way_out in cast("list[str]", AT_HOME["forbidden_modules"]):
        if way_out in graph.modules and way_out.startswith("curtilage.client"):
            inside = {way_out, *graph.find_descendants(way_out)}
            # Everyone may import a tier's failure reasons, which are only words.
            inside -= {each for each in inside if each.endswith(".reasons")}
            asks |= inside.union(*map(graph.find_downstream_modules, inside))
    left_out = [
        module
        for module in graph.find_descendants("curtilage.client") - held - asks
        if graph.find_modules_directly_imported_by(module)
    ]
    assert left_out == [], "name them in the contract"


def test_no_module_of_the_client_is_left_out_of_the_detectors_contract() -> None:
    graph = grimp.build_graph("curtilage.client", "curtilage.cli", cache_dir=None)
    named = cast("list[str]", APART["source_modules"])
    held = {each for name in named for each in (name, *graph.find_descendants(name))}
    theirs = {DETECTORS, *graph.find_descendants(DETECTORS)}
    left_out = [
        module
        for module in graph.find_descendants("curtilage.client") - held - theirs
        if graph.find_modules_directly_imported_by(module)
    ]
    assert left_out == [], "name them in the contract"


def test_a_library_that_another_module_imports_breaks_the_contract(
    capsys: pytest.CaptureFixture[str],
) -> None:
    graph = grimp.ImportGraph()
    for name in ("lib", "ours", "ours.door", "ours.other"):
        graph.add_module(name, is_squashed=name == "lib")
    graph.add_import(importer="ours.door", imported="lib")
    contract = DoorsContract(
        "libraries", {"root_packages": ["ours"]}, {"doors": {"lib": ["ours.door"]}}
    )
    configuration.configure()
    assert contract.check(graph, verbose=False).kept
    graph.add_import(importer="ours.other", imported="lib")
    broken = contract.check(graph, verbose=False)
    assert not broken.kept
    contract.render_broken_contract(broken)
    assert "ours.other -> lib" in capsys.readouterr().out
