"""What ``dcap_qvl`` alone says of TDX evidence, and evidence that it never saw."""

import json
from dataclasses import replace
from datetime import datetime

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from curtilage.attest.encoding.der import elements, only_element
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import TdxEvidence
from curtilage.attest.tdx.collateral import Collateral, TcbStatus, parse_collateral
from curtilage.attest.tdx.dcap_qvl import LibraryRules, ask_library
from curtilage_dev.emulated.der import element
from curtilage_dev.emulated.tdx import EmulatedTdx
from support.tdx_evidence import edited, platform


def library_accepts(evidence: TdxEvidence, now: datetime) -> bool:
    """Ask the library alone, with the strictest policy."""
    rules = LibraryRules(
        root=platform().root,
        statuses=frozenset({TcbStatus.UP_TO_DATE}),
        min_evaluation_number=0,
        rejected_advisories=(),
    )
    collateral = _unchanged(evidence)
    code = RefusalCode.TCB_STATUS
    try:
        ask_library(evidence.quote, collateral, rules, now=now, code=code)
    except RefusedError as error:
        return error.code is not code
    return True


def _unchanged(evidence: TdxEvidence) -> Collateral:
    """Read collateral whose signed texts have a version that we refuse."""
    document = json.loads(evidence.collateral)
    readable: dict[str, object] = {}
    for name, version in (("tcb_info", 3), ("qe_identity", 2)):
        inner = json.loads(document[name]) | {"version": version}
        readable[name] = json.dumps(inner)
    return replace(
        parse_collateral(edited(evidence, **readable).collateral),
        tcb_info=document["tcb_info"],
        qe_identity=document["qe_identity"],
    )


def endless_list(evidence: TdxEvidence, maker: EmulatedTdx) -> TdxEvidence:
    """Take the end out of the root's revocation list, and sign it again."""
    encoded = bytes.fromhex(json.loads(evidence.collateral)["root_ca_crl"])
    whole, algorithm, _ = elements(only_element(encoded).content)
    body = whole.content
    at = body.index(b"\x17\x0d")
    assert body[at + 15 : at + 17] == b"\x17\x0d"
    signed_part = element(0x30, body[: at + 15] + body[at + 30 :])
    key = maker.provisioning.keys.root
    signature = element(0x03, b"\0" + key.sign(signed_part, ec.ECDSA(hashes.SHA256())))
    endless = element(0x30, signed_part + algorithm.encoded + signature)
    return edited(evidence, root_ca_crl=endless.hex())
