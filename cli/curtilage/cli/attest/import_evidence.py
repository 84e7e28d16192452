"""``curtilage attest import``: verify the evidence that another service publishes."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Final

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.expectations import Expectations
from curtilage.attest.steps import UNFORESEEN
from curtilage.cli.attest.encodings import MAX_FILE_BYTES
from curtilage.cli.attest.evidence_files import EvidenceFiles
from curtilage.cli.attest.foreign.published import Finding, Given, unknown
from curtilage.cli.attest.foreign.reader import MAX_DOCUMENT_BYTES
from curtilage.cli.attest.foreign.verdict import (
    NAMES,
    Imported,
    Tier,
    import_document,
)
from curtilage.cli.attest.tree import tree_text
from curtilage.cli.attest.verdict_json import evidence_object, refusal_object
from curtilage.cli.attest.words import print_refusal, steps_text
from curtilage.cli.declared import Arguments
from curtilage.cli.options import time_of
from curtilage.cli.terminal import DONE, REFUSED, out, out_json, time_text
from curtilage.client.config import read_policy
from curtilage.client.errors import UsageError
from curtilage.client.system.files import read_start
from curtilage.policy.expectations import expectations_from

KIND: Final = "import"
_ENDORSEMENTS: Final = ("vek", "chain", "crl", "certs", "collateral")
_AMD: Final = frozenset({"vek", "chain", "crl", "certs"})
# What each service's documents take. An ignored option would look as if it had been
# compared.
_TAKES: Final[Mapping[str, frozenset[str]]] = {
    "tinfoil": _AMD | {"nonce", "collateral"},
    "privatemode": _AMD | {"nonce", "collateral", "manifest"},
    "dstack": frozenset({"nonce", "report_data", "collateral"}),
    "near": frozenset({"nonce", "part", "collateral"}),
}
_OPTIONS: Final = ("nonce", "part", "manifest", "report_data", *_ENDORSEMENTS)


def run(arguments: Arguments) -> int:
    """Verify; exit 1 if the document is refused."""
    policy, _ = read_policy(arguments.policy)
    now = time_of(arguments.at)
    source = arguments.source
    given = _given(arguments, source, now)
    document = read_start(Path(arguments.evidence), MAX_DOCUMENT_BYTES)
    expectations = expectations_from(policy)
    try:
        imported = _imported(source, document, expectations, given)
    except RefusedError as refusal:
        if arguments.json:
            out_json(refused_object(source, refusal, at=now))
        else:
            print_refusal(KIND, refusal, at=now, as_json=False)
        return REFUSED
    if arguments.json:
        out_json(imported_object(source, imported, at=now))
    else:
        _print(imported)
    return DONE


def _imported(
    source: str, document: bytes, expectations: Expectations, given: Given
) -> Imported:
    try:
        return import_document(source, document, expectations, given)
    except (RefusedError, UsageError):
        raise
    # Outermost boundary, as in verify: an exception may contain the document's bytes.
    except Exception:  # noqa: BLE001 - see above
        raise RefusedError(RefusalCode.VERIFIER_UNAVAILABLE, UNFORESEEN) from None


def _given(arguments: Arguments, source: str, now: datetime) -> Given:
    for name in _OPTIONS:
        if getattr(arguments, name) and name not in _TAKES[source]:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} does not apply to {source}")
    manifest = b""
    if arguments.manifest:
        manifest = read_start(Path(arguments.manifest), MAX_FILE_BYTES)
        # Empty, it would count as not given.
        if not manifest:
            raise UsageError("--manifest is an empty file")
    endorsements = {name: _file(arguments, name) for name in _ENDORSEMENTS}
    return Given(
        at=now,
        nonce=_hex(arguments.nonce, "--nonce"),
        part=arguments.part or "",
        manifest=manifest,
        report_data=_hex(arguments.report_data, "--report-data"),
        files=EvidenceFiles(**endorsements),
    )


def _file(arguments: Arguments, name: str) -> bytes:
    path: str | None = getattr(arguments, name)
    return read_start(Path(path), MAX_FILE_BYTES) if path else b""


def _hex(text: str | None, option: str) -> bytes | None:
    if text is None:
        return None
    found = b""
    with suppress(ValueError):
        found = bytes.fromhex(text.removeprefix("0x"))
    # An empty value compares nothing, but the verdict would say that it was compared.
    if not found:
        raise UsageError(f"{option} needs hexadecimal digits, two per byte")
    return found


def imported_object(
    source: str, imported: Imported, *, at: datetime
) -> dict[str, object]:
    """Return the verdict on an accepted document."""
    ends = [each.claims.expires_at for each in (imported.cpu, *imported.devices)]
    devices: list[object] = [evidence_object(each, at=at) for each in imported.devices]
    return {
        **evidence_object(imported.cpu, at=at),
        "kind": KIND,
        "source": source,
        "form": imported.form,
        "expires_at": time_text(min(ends)),
        "devices": devices,
        "appraisal": _appraisal(imported.findings),
        "tier": _tier(imported.tier),
    }


def refused_object(
    source: str, refusal: RefusedError, *, at: datetime
) -> dict[str, object]:
    """Return a refusal, with the same members as an accepted document's verdict."""
    why = f"refused: {refusal.code.value}"
    return refusal_object(KIND, refusal, at=at) | {
        "source": source,
        "form": None,
        "devices": list[object](),
        # Rows here too, so that a reader's table has no holes; none of them is more
        # than unknown, whatever was verified before the refusal.
        "appraisal": _appraisal(dict.fromkeys(NAMES, unknown(why))),
        "tier": _tier(Tier(may=False, way=None, why=why)),
    }


def _appraisal(findings: Mapping[str, Finding]) -> dict[str, object]:
    return {
        name: {"status": finding.status.value, "why": finding.why}
        for name, finding in findings.items()
    }


def _tier(tier: Tier) -> dict[str, object]:
    way = None if tier.way is None else asdict(tier.way)
    return {"may": tier.may, "way": way, "why": tier.why}


def _print(imported: Imported) -> None:
    for verdict in (imported.cpu, *imported.devices):
        out(steps_text(verdict.steps))
        out(f"\n{tree_text(verdict.claims.links)}\n")
    out(f"{imported.form}:\n" + "\n".join(_rows(imported.findings.items())))
    tier = imported.tier
    out(f"\nAs a tier: {'possible' if tier.may else 'no'} ({tier.why})")
    if tier.way is not None:
        out(f"     {tier.way.by.value} key {tier.way.key}\n     at: {tier.way.where}")
    ends = min(each.claims.expires_at for each in (imported.cpu, *imported.devices))
    out(f"ACCEPTED until {time_text(ends)}; read what was checked, line by line")


def _rows(findings: Iterable[tuple[str, Finding]]) -> Iterable[str]:
    listed = list(findings)
    width = max(len(name) for name, _ in listed)
    return [
        f"     {name:<{width}}  {finding.status.value:<7}  {finding.why}"
        for name, finding in listed
    ]
