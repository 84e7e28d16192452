# ruff: noqa: ANN401 - fields of every type are changed by name

"""The sandbox statement: its form, and what its self-test must show."""

import json
import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.encoding.strict_json import canonical_json
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.log.manifest import parse_manifest
from curtilage.attest.sandbox import (
    LEAST_ATTEMPTS,
    MAX_ATTEMPTS,
    MAX_PROCESSES,
    PROCESSES,
    Ephemerality,
    Isolation,
    Memory,
    ProcessResult,
    SelfTest,
    encode_statement,
    parse_statement,
    require_held,
)
from support.sandboxes import ATTEMPTS, HELD, statement

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "sandbox-v1"


def test_vectors_are_what_the_script_makes() -> None:
    made = runpy.run_path(str(VECTORS / "make_sandbox.py"))["make"]()
    assert json.loads((VECTORS / "vectors.json").read_text()) == made


def test_the_encoding_matches_the_vectors() -> None:
    vectors = json.loads((VECTORS / "vectors.json").read_text())
    assert len(vectors["statements"]) >= 3
    for vector in vectors["statements"]:
        data: bytes = vector["canonical"].encode()
        parsed = parse_statement(data)
        assert encode_statement(parsed) == data, vector["name"]
        assert parsed.loaded.hex() == vector["loaded"]
        assert parsed.isolation == vector["isolation"]
        assert parsed.ephemerality == vector["ephemerality"]
        tested = {each.name: each for each in parsed.result.processes}
        assert set(tested) >= set(PROCESSES)
        if vector["holds"]:
            require_held(parsed.result)
        else:
            with pytest.raises(RefusedError) as caught:
                require_held(parsed.result)
            assert caught.value.code is RefusalCode.SANDBOX_OPEN


def test_a_manifest_that_names_a_sandbox_matches_the_vectors() -> None:
    vectors = json.loads((VECTORS / "vectors.json").read_text())
    manifest = parse_manifest(vectors["manifest"].encode())
    (first, *_) = vectors["statements"]
    assert manifest.sandbox == first["loaded"]
    assert manifest.isolation == first["isolation"]
    assert manifest.ephemerality == first["ephemerality"]


@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("ephemerality", Ephemerality)
@pytest.mark.parametrize("memory", Memory)
def test_a_statement_survives_its_encoding(
    isolation: Isolation, ephemerality: Ephemerality, memory: Memory
) -> None:
    made = statement(
        isolation=isolation,
        ephemerality=ephemerality,
        result=replace(HELD, memory=memory),
    )
    assert parse_statement(encode_statement(made)) == made


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_digest_has_32_bytes(length: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        replace(statement(), loaded=bytes(length))


Tree = dict[str, Any]


def _engine(tree: Tree) -> Tree:
    found: Tree = tree["result"]["processes"][0]
    return found


EDITS: dict[str, tuple[Callable[[Tree], object], RefusalCode]] = {
    "version 2": (lambda t: t.update(v=2), RefusalCode.UNSUPPORTED_VERSION),
    "missing": (lambda t: t.pop("isolation"), RefusalCode.MALFORMED),
    "unknown": (lambda t: t.update(note=""), RefusalCode.MALFORMED),
    "unknown in the result": (
        lambda t: t["result"].update(x=1),
        RefusalCode.MALFORMED,
    ),
    "unknown in a process": (lambda t: _engine(t).update(x=1), RefusalCode.MALFORMED),
    "no list of successes": (
        lambda t: _engine(t).pop("succeeded"),
        RefusalCode.MALFORMED,
    ),
    "short digest": (lambda t: t.update(loaded="5a"), RefusalCode.MALFORMED),
    "long digest": (lambda t: t.update(loaded="5a" * 33), RefusalCode.TOO_LARGE),
    "digest in capitals": (lambda t: t.update(loaded="5A" * 32), RefusalCode.MALFORMED),
    "another isolation": (
        lambda t: t.update(isolation="complete"),
        RefusalCode.MALFORMED,
    ),
    "another ephemerality": (
        lambda t: t.update(ephemerality=""),
        RefusalCode.MALFORMED,
    ),
    "memory that may be swapped": (
        lambda t: t["result"].update(memory="swappable"),
        RefusalCode.MALFORMED,
    ),
    "a flag for a number": (
        lambda t: t["result"].update(landlock_abi=True),
        RefusalCode.MALFORMED,
    ),
    "a process twice": (
        lambda t: t["result"]["processes"].append(_engine(t)),
        RefusalCode.MALFORMED,
    ),
    "an attempt twice": (
        lambda t: _engine(t)["denied"].append(ATTEMPTS[0]),
        RefusalCode.MALFORMED,
    ),
    "an attempt that failed and succeeded": (
        lambda t: _engine(t)["succeeded"].append(ATTEMPTS[0]),
        RefusalCode.MALFORMED,
    ),
    "an attempt with a space": (
        lambda t: _engine(t)["denied"].append("a b"),
        RefusalCode.MALFORMED,
    ),
    "a process with a line feed": (
        lambda t: _engine(t).update(name="engine\n"),
        RefusalCode.MALFORMED,
    ),
    "many processes": (
        lambda t: t["result"].update(processes=[_engine(t)] * (MAX_PROCESSES + 1)),
        RefusalCode.TOO_LARGE,
    ),
    "many attempts": (
        lambda t: _engine(t).update(
            denied=[f"a{number}" for number in range(MAX_ATTEMPTS + 1)]
        ),
        RefusalCode.TOO_LARGE,
    ),
    "a long name": (
        lambda t: _engine(t)["denied"].append("a" * 65),
        RefusalCode.TOO_LARGE,
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_statement_is_refused(name: str) -> None:
    edit, code = EDITS[name]
    tree: Tree = json.loads(encode_statement(statement()))
    edit(tree)
    with pytest.raises(RefusedError) as caught:
        parse_statement(canonical_json(tree))
    assert caught.value.code is code


LOOSE: dict[str, Callable[[bytes], bytes]] = {
    "newline": lambda data: data + b"\n",
    "spaces": lambda data: data.replace(b":", b": "),
    "escape": lambda data: data.replace(b"engine", b"\\u0065ngine"),
    "duplicate": lambda data: data.replace(b'{"eph', b'{"v":1,"eph'),
}


@pytest.mark.parametrize("name", LOOSE)
def test_other_encodings_are_refused(name: str) -> None:
    with pytest.raises(RefusedError) as caught:
        parse_statement(LOOSE[name](encode_statement(statement())))
    assert caught.value.code is RefusalCode.MALFORMED


def test_a_large_statement_is_refused_unread() -> None:
    with pytest.raises(RefusedError) as caught:
        parse_statement(b" " * (16 * 1024 + 1))
    assert caught.value.code is RefusalCode.TOO_LARGE


@given(data=st.binary(max_size=200))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(RefusedError):
        parse_statement(data)


# --- what the self-test must show ----------------------------------------------


def test_a_closed_sandbox_holds() -> None:
    require_held(HELD)
    more = ProcessResult(name="launcher", denied=ATTEMPTS)
    require_held(replace(HELD, processes=(*HELD.processes, more)))


def _changed(place: int, **changes: Any) -> SelfTest:
    processes = list(HELD.processes)
    processes[place] = replace(processes[place], **changes)
    return replace(HELD, processes=tuple(processes))


OPEN: dict[str, tuple[SelfTest, str]] = {
    "no Landlock": (replace(HELD, landlock_abi=0), "Landlock"),
    "no engine": (replace(HELD, processes=HELD.processes[1:]), "the engine"),
    "no server": (replace(HELD, processes=HELD.processes[:1]), "the server"),
    "nobody": (replace(HELD, processes=()), "the engine, of the server"),
    "one escape": (_changed(1, succeeded=("mkdir", "exec")), "server: mkdir, exec"),
    "few attempts": (_changed(0, denied=ATTEMPTS[1:]), f"{LEAST_ATTEMPTS - 1} attempt"),
    "a third process that escapes": (
        replace(
            HELD,
            processes=(
                *HELD.processes,
                ProcessResult(name="helper", denied=ATTEMPTS, succeeded=("exec",)),
            ),
        ),
        "helper: exec",
    ),
}


@pytest.mark.parametrize("name", OPEN)
def test_an_open_sandbox_is_refused(name: str) -> None:
    result, said = OPEN[name]
    with pytest.raises(RefusedError) as caught:
        require_held(result)
    assert caught.value.code is RefusalCode.SANDBOX_OPEN
    assert said in caught.value.detail
