"""``curtilage attest verify-evidence``: verify one piece of evidence."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import DeviceKind, Tee
from curtilage.attest.expectations import Expectations
from curtilage.attest.standalone import EvidenceVerdict, verify_device, verify_evidence
from curtilage.attest.steps import UNFORESEEN
from curtilage.cli.attest.encodings import MAX_FILE_BYTES
from curtilage.cli.attest.evidence_files import (
    EvidenceFiles,
    cpu_evidence,
    device_evidence,
)
from curtilage.cli.attest.hints import with_hint
from curtilage.cli.attest.tree import tree_text
from curtilage.cli.attest.verdict_json import evidence_object
from curtilage.cli.attest.words import claims_text, print_refusal, steps_text
from curtilage.cli.declared import Arguments
from curtilage.cli.options import time_of
from curtilage.cli.terminal import DONE, REFUSED, out, out_json, time_text
from curtilage.client.config import read_policy
from curtilage.client.errors import UsageError
from curtilage.client.system.files import read_start
from curtilage.policy.expectations import expectations_from

_QUOTED: Final = frozenset({"hcl", "quote-message", "quote-signature", "pcrs"})
# Options in addition to --evidence. An ignored file would look as if it were verified.
_OF_KIND: Final[Mapping[str, frozenset[str]]] = {
    "sev-snp": frozenset({"vek", "chain", "crl", "certs"}),
    "tdx": frozenset({"collateral"}),
    "nitro": frozenset(),
    "azure-snp": frozenset({"vek", "chain", "crl", "certs"}) | _QUOTED,
    "azure-tdx": frozenset({"collateral", "td-quote"}) | _QUOTED,
    "tpm": frozenset({"ak"}) | _QUOTED - {"hcl"},
    "nvidia-gpu": frozenset({"certs"}),
}
_EvidenceT = TypeVar("_EvidenceT")
_DER: Final = b"\x30"


def run(arguments: Arguments) -> int:
    """Verify; exit 1 if the evidence is refused."""
    policy, _ = read_policy(arguments.policy)
    now = time_of(arguments.at)
    bound: bytes | None = None
    if arguments.report_data is not None:
        with suppress(ValueError):
            bound = bytes.fromhex(arguments.report_data.removeprefix("0x"))
        # An empty value proves nothing, but the verdict would say that it was compared.
        if not bound:
            raise UsageError("--report-data needs hexadecimal digits, two per byte")
    files = _files(arguments)
    try:
        verdict = _verified(arguments.tee, files, expectations_from(policy), now, bound)
    except RefusedError as refusal:
        print_refusal("evidence", refusal, at=now, as_json=arguments.json)
        return REFUSED
    if arguments.json:
        out_json(evidence_object(verdict, at=now))
    else:
        out(steps_text(verdict.steps))
        out(f"\n{claims_text(verdict.claims)}\n\n{tree_text(verdict.claims.links)}\n")
        until = f"ACCEPTED until {time_text(verdict.claims.expires_at)}"
        # Without it, evidence of another enclave, or an old one, is accepted as well.
        if not verdict.bound_checked:
            until += "; the signed report data was not compared (no --report-data)"
        out(until)
    return DONE


def _verified(
    kind: str,
    files: EvidenceFiles,
    expectations: Expectations,
    now: datetime,
    bound: bytes | None,
) -> EvidenceVerdict:
    if kind in {device.value for device in DeviceKind}:
        device = _decoded(lambda: device_evidence(DeviceKind(kind), files))
        try:
            return verify_device(device, expectations, now=now, nonce=bound)
        except RefusedError as refusal:
            raise with_hint(refusal, device) from None
    evidence = _decoded(lambda: cpu_evidence(Tee(kind), files))
    try:
        return verify_evidence(evidence, expectations, now=now, bound=bound)
    except RefusedError as refusal:
        raise with_hint(refusal, evidence) from None


def _decoded(decode: Callable[[], _EvidenceT]) -> _EvidenceT:
    """Decode files; every failure, expected or not, is a refusal."""
    try:
        return decode()
    except RefusedError:
        raise
    # Outermost boundary, as in verify: an exception may contain the file's bytes.
    except Exception:  # noqa: BLE001 - see above
        raise RefusedError(RefusalCode.VERIFIER_UNAVAILABLE, UNFORESEEN) from None


def _files(arguments: Arguments) -> EvidenceFiles:
    kind = arguments.tee.removeprefix("emulated-")
    found: dict[str, bytes] = {}
    for field in fields(EvidenceFiles):
        name = field.name.replace("_", "-")
        given: str | list[str] | None = getattr(arguments, field.name)
        if given and name not in {"evidence", *_OF_KIND[kind]}:
            takes = ", ".join(f"--{each}" for each in sorted(_OF_KIND[kind])) or "none"
            raise UsageError(f"--{name} does not apply to {kind}, which takes {takes}")
        paths = [given] if isinstance(given, str) else given or []
        each = [read_start(Path(path), MAX_FILE_BYTES) for path in paths]
        # DER objects contain their length; text files need a line break between them.
        between = b"" if all(file.startswith(_DER) for file in each) else b"\n"
        found[field.name] = between.join(each)
    return EvidenceFiles(**found)
