"""The door to dcap_qvl: lazy, always with a policy, codes by stage."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.tdx.collateral import TcbStatus, parse_collateral
from curtilage.attest.tdx.dcap_qvl import LibraryRules, ask_library
from support.tdx_evidence import NOW, emulated, platform, refused, with_tcb

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = emulated()


def _rules(
    *statuses: TcbStatus, number: int = 0, advisories: tuple[str, ...] = ()
) -> LibraryRules:
    return LibraryRules(
        root=platform().root,
        statuses=frozenset(statuses),
        min_evaluation_number=number,
        rejected_advisories=advisories,
    )


def _ask(
    rules: LibraryRules,
    *,
    quote: bytes = SAMPLE.quote,
    collateral: bytes = SAMPLE.collateral,
) -> None:
    ask_library(
        quote,
        parse_collateral(collateral),
        rules,
        now=NOW,
        code=RefusalCode.TCB_STATUS,
    )


def _code(rules: LibraryRules, *, collateral: bytes = SAMPLE.collateral) -> RefusalCode:
    with pytest.raises(RefusedError) as caught:
        _ask(rules, collateral=collateral)
    assert "dcap-qvl" in caught.value.detail
    return caught.value.code


def test_the_library_is_asked_with_a_policy() -> None:
    _ask(_rules(TcbStatus.UP_TO_DATE))
    _ask(_rules(TcbStatus.UP_TO_DATE, number=18))
    assert _code(_rules(TcbStatus.UP_TO_DATE, number=19)) is RefusalCode.TCB_STATUS
    level = platform().provisioning.fields(now=NOW).tcb.levels[1]
    older = emulated(collateral=with_tcb(levels=(level,))).collateral
    assert _code(_rules(TcbStatus.UP_TO_DATE), collateral=older) is (
        RefusalCode.TCB_STATUS
    )
    _ask(_rules(TcbStatus.OUT_OF_DATE), collateral=older)
    rejecting = _rules(TcbStatus.OUT_OF_DATE, advisories=level.advisories)
    assert _code(rejecting, collateral=older) is RefusalCode.TCB_STATUS


def test_the_library_is_asked_about_the_pinned_root() -> None:
    other = LibraryRules(
        root=platform().provisioning.authority,
        statuses=frozenset({TcbStatus.UP_TO_DATE}),
        min_evaluation_number=0,
        rejected_advisories=(),
    )
    assert _code(other) is RefusalCode.TCB_STATUS


def test_without_the_library_no_quote_is_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "dcap_qvl", None)
    error = refused(SAMPLE)
    assert (error.code, error.step) == (
        RefusalCode.VERIFIER_UNAVAILABLE,
        "second opinion",
    )


def _install(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: object) -> None:
        raise error

    module = ModuleType("dcap_qvl")
    module.__dict__["QuoteVerifier"] = fail
    monkeypatch.setitem(sys.modules, "dcap_qvl", module)


def test_what_only_the_library_refuses_has_the_last_stages_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _install(monkeypatch, ValueError("unread text: tdx"))
    error = refused(SAMPLE)
    assert (error.code, error.step) == (RefusalCode.TCB_STATUS, "second opinion")
    assert "unread" not in error.detail


def test_a_panic_of_the_library_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    panic = type("PanicException", (BaseException,), {})("inside")
    _install(monkeypatch, panic)
    error = refused(SAMPLE)
    assert error.code is RefusalCode.VERIFIER_UNAVAILABLE
    assert error.__cause__ is None


def test_an_interruption_is_not_the_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        _ask(_rules(TcbStatus.UP_TO_DATE))


def _sources() -> list[Path]:
    parts = (
        "attest",
        "wire",
        "inference",
        "policy",
        "client",
        "relay",
        "enclave_server",
    )
    return [path for part in parts for path in sorted((ROOT / part).rglob("*.py"))]


@pytest.mark.parametrize(
    ("pattern", "allowed"),
    [
        (r"get_collateral", ()),
        (r"(?:import|from) dcap_qvl", ("dcap_qvl.py",)),
        (r"py_verify|dcap_qvl\.verify|verify_with_root_ca", ()),
    ],
    ids=["never fetches", "one door", "never without a policy"],
)
def test_how_the_library_is_used(pattern: str, allowed: tuple[str, ...]) -> None:
    found = {
        path.name for path in _sources() if re.search(pattern, path.read_text("utf-8"))
    }
    assert found == set(allowed)


def test_the_library_is_imported_when_it_is_first_asked() -> None:
    text = (ROOT / "attest/curtilage/attest/tdx/dcap_qvl.py").read_text("utf-8")
    lines = [line for line in text.splitlines() if "import dcap_qvl" in line]
    assert all(line.startswith("        ") for line in lines)
