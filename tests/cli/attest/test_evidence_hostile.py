"""Hostile files: no traceback, no endless work, no wrong code."""

import json
import os
import ssl
import tracemalloc
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import thread_time

import pytest

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import Tee
from curtilage.attest.evidence_json import encode_cpu_evidence
from curtilage.cli.attest import verify_evidence as attest_evidence
from curtilage.cli.attest.encodings import (
    MAX_FILE_BYTES,
    decode_blob,
    decode_certificates,
    json_bytes,
)
from curtilage.cli.attest.tpm_registers import read_values
from curtilage.cli.main import main
from curtilage.client.system.files import NOT_ORDINARY
from curtilage_dev.deployment import MEASUREMENT
from curtilage_dev.emulated.machines import make_machine, registers_of
from support.evidence_policies import write_policy
from support.evidence_texts import refused
from support.memory_enclave import NOW

MIB = 1024 * 1024
AT = f"{NOW:%Y-%m-%dT%H:%M:%SZ}"


def values(file: bytes) -> object:
    return read_values(file, selected=lambda: (0,))


# --- work --------------------------------------------------------------------

FOLDS = b"00000000  61\n" + b"".join(
    b"*\n%08x  61\n" % (number * MAX_FILE_BYTES) for number in range(1, 5000)
)
BOMBS = {
    "folds": FOLDS,
    "blanks behind a head": b"-----BEGIN A-----" + b" " * (MAX_FILE_BYTES - 100),
    "blanks and a wrong letter": b"-----BEGIN A-----" + b" " * 200_000 + b"!",
    "heads": b"-----BEGIN A-----" * 15_000,
    "heads and ends": b"-----BEGIN A-----AAAA" + b"-----END B-----" * 15_000,
    "empty blocks": b"-----BEGIN A-----\n-----END A-----\n" * 7_000,
    "empty sequences": b"\x30\x00" * 130_000,
    "empty texts": b"[" + b'"",' * 80_000 + b'""]',
    "colons": b":" * MAX_FILE_BYTES,
    "asterisks": b"00000000  61\n" + b"*\n" * 130_000,
    "numbers": b"[" + b"1," * 130_000 + b"1]",
    "nested": b"[" * 260_000,
    "lines": b"zzzz\n" * 50_000,
}


def decode(data: bytes) -> None:
    for call in (decode_blob, decode_certificates):
        with suppress(RefusedError):
            call(data, "file")


@pytest.mark.parametrize("name", BOMBS)
def test_no_file_takes_much_memory(name: str) -> None:
    tracemalloc.start()
    try:
        decode(BOMBS[name])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 * MIB


def test_parsing_stops_at_the_limit_of_certificates() -> None:
    """The 18th object is broken, but 17 are already too many."""
    seventeen = b"\x30\x00" * 17
    for tail in (b"", b"broken"):
        code = refused(partial(decode_certificates, seventeen + tail, "x"))
        assert code is RefusalCode.TOO_LARGE
    blocks = b"-----BEGIN A-----\n-----END A-----\n" * 17
    for tail in (b"", b"-----BEGIN A-----"):
        code = refused(partial(decode_certificates, blocks + tail, "x"))
        assert code is RefusalCode.TOO_LARGE
    large = b"\x30\x83" + (MAX_FILE_BYTES - 4).to_bytes(3) + bytes(MAX_FILE_BYTES)
    assert refused(lambda: decode_certificates(large, "x")) is RefusalCode.TOO_LARGE


def grows(make: Callable[[int], bytes], call: Callable[[bytes], object]) -> float:
    """Return the factor in time for a file eight times as large."""

    def cost(size: int) -> float:
        data, least = make(size), 9.0
        for _ in range(3):
            begun = thread_time()
            with suppress(RefusedError):
                call(data)
            least = min(least, thread_time() - begun)
        return max(least, 0.0005)

    return cost(32_000) / cost(4_000)


QUADRATIC: dict[str, tuple[Callable[[int], bytes], Callable[[bytes], object]]] = {
    "PEM": (lambda size: b"-----BEGIN A-----" + b" " * size + b"!", decode),
    "PEM body": (
        lambda size: b"-----BEGIN A-----" + b" " * size + b"!-----END A-----",
        decode,
    ),
    "DER": (lambda size: b"\x30\x00" * size, decode),
    "PCR": (lambda size: b"0:00," + b" " * size + b"x", values),
    "pcr": (lambda size: b"0:00,pcr" + b" " * size + b"x", values),
    "bank": (lambda size: b"sha256" + b" " * size + b"x", values),
    "groups": (lambda size: b"0x00 " * size + b"1", decode),
    "base64": (lambda size: b"zz\n" * size + b"!", decode),
}


@pytest.mark.parametrize("name", QUADRATIC)
def test_eight_times_the_file_is_not_sixty_times_the_work(name: str) -> None:
    """Quadratic would be 64; even a busy machine stays far below 30."""
    assert grows(*QUADRATIC[name]) < 30


# --- the right code ----------------------------------------------------------

NOISE = bytes((7 * number * number + number) % 256 for number in range(1200))


@pytest.mark.parametrize("letter", [b"g", b"z", b"G", b"-", b"_", b"+", b"/"])
@pytest.mark.parametrize("place", [0, 99, 100, 2399])
def test_a_wrong_letter_in_hexadecimal_makes_no_base64_of_it(
    letter: bytes, place: int
) -> None:
    for digits in (NOISE.hex(), NOISE.hex().upper(), bytes(1200).hex()):
        text = digits.encode()
        wrong = text[:place] + letter + text[place + 1 :]
        assert refused(partial(decode_blob, wrong, "x")) is RefusalCode.MALFORMED


def test_a_digit_too_few_makes_no_base64_of_it() -> None:
    short = NOISE.hex()[:-1]
    assert refused(lambda: decode_blob(short.encode(), "x")) is RefusalCode.MALFORMED
    assert refused(lambda: json_bytes(short, "x")) is RefusalCode.MALFORMED


def test_two_pem_blocks_are_not_parsed_as_base64() -> None:
    block = b"-----BEGIN A-----\nAAAA\n-----END A-----\n"
    assert refused(lambda: decode_blob(block * 2, "x")) is RefusalCode.MALFORMED


# --- the command -------------------------------------------------------------


@pytest.fixture(name="nitro", scope="module")
def _nitro(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command over a file of emulated evidence, all that it needs."""
    folder = tmp_path_factory.mktemp("nitro")
    machine = make_machine(Tee.EMULATED_NITRO, MEASUREMENT, now=NOW)
    evidence = folder / "evidence"
    evidence.write_bytes(encode_cpu_evidence(machine.evidence(bytes(64), now=NOW)))
    anchor = machine.anchor()
    certificate = ssl.DER_cert_to_PEM_cert(anchor.certificate_der)
    policy = write_policy(
        folder / "policy.yaml",
        environment="development",
        trust_anchors=[
            {"kind": "emulated", "product": anchor.product, "certificate": certificate}
        ],
        required_cpu_tees=[machine.tee.value],
        measurements={
            machine.tee.value: [dict(registers_of(machine.tee, MEASUREMENT))]
        },
    )
    command = ["attest", "verify-evidence", "--tee", machine.tee.value, "--json"]
    return [*command, "--evidence", str(evidence), "--policy", policy]


def test_a_mistake_in_reading_files_is_a_refused(
    nitro: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def mistaken(*_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(attest_evidence, "cpu_evidence", mistaken)
    assert main([*nitro, "--at", AT]) == 1
    shown = capsys.readouterr()
    assert json.loads(shown.out)["code"] == "verifier_unavailable"
    assert "secret" not in shown.out + shown.err


@pytest.mark.parametrize(
    "at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]
)
def test_a_time_beyond_the_calendar_is_wrong_use(nitro: list[str], at: str) -> None:
    assert main([*nitro, "--at", at]) == 2


@pytest.mark.parametrize("empty", ["", "0x", "  "])
def test_report_data_that_was_left_empty_is_wrong_use(
    nitro: list[str], empty: str
) -> None:
    assert main([*nitro, "--at", AT]) == 0
    assert main([*nitro, "--at", AT, "--report-data", empty]) == 2


def test_a_pipe_is_not_waited_for(
    nitro: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, Path("/dev/zero")):
        assert main([*nitro, "--at", AT, "--evidence", str(path)]) == 2
        assert NOT_ORDINARY in capsys.readouterr().err


def test_a_librarys_remark_on_a_certificate_is_not_printed(
    nitro: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def remarking(*_: object) -> None:
        module = "curtilage.attest.sev_snp.certificates"
        warnings.warn_explicit("odd", UserWarning, "certificates.py", 1, module)
        raise RefusedError(RefusalCode.CHAIN_INVALID, "reached")

    monkeypatch.setattr(attest_evidence, "cpu_evidence", remarking)
    with warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always")
        assert main([*nitro, "--at", AT]) == 1
    assert remarks == []
