"""Intel's collateral as JSON: what dcap-qvl calls ``QuoteCollateralV3``.

Pure. Lists and signatures may have any encoding of bytes in JSON. Two kinds of member
may come as Intel's service delivers them: issuer chains percent-encoded (they are
values of HTTP fields), and a statement as the whole response with its signature. They
are normalised; a file without them is returned unchanged. The text of a statement is
never changed, since Intel signed its exact bytes: a statement that is a JSON object is
refused.
"""

import json
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from curtilage.attest.encoding.strict_json import malformed
from curtilage.cli.attest.encodings import BOM, decode_json, json_bytes

_BYTES: Final = (
    "root_ca_crl",
    "pck_crl",
    "tcb_info_signature",
    "qe_identity_signature",
)
_CHAINS: Final = (
    "pck_crl_issuer_chain",
    "tcb_info_issuer_chain",
    "qe_identity_issuer_chain",
    "pck_certificate_chain",
)
_ENCODED_CHAIN: Final = "-----BEGIN%20CERTIFICATE-----"
_HEX: Final = re.compile(r"(?:[0-9A-Fa-f]{2})*")
# A statement and its signature in the service's response (PCS API, "Get TDX TCB
# Info" and "Get TDX QE identity").
_ANSWERS: Final = {
    name: re.compile(
        rf'\{{"{member}":(\{{.*\}}),"signature":"([0-9A-Fa-f]{{128}})"\}}\s*',
        re.DOTALL,
    )
    for name, member in (("tcb_info", "tcbInfo"), ("qe_identity", "enclaveIdentity"))
}
_FORM: Final = (
    "collateral: must be the JSON object QuoteCollateralV3 of dcap-qvl, with "
    "tcb_info and qe_identity as the exact text that Intel signed"
)


def read_collateral(file: bytes) -> bytes:
    """Return the collateral in the verifier's form.

    Raises:
        RefusedError: ``malformed`` or ``too_large``.
    """
    text = file.removeprefix(BOM).strip()
    if not text:
        return b""
    fields = decode_json(file, "collateral")
    if fields is None or "collateral" in fields:
        raise malformed(_FORM)
    changed = dict(fields)
    for name in _BYTES:
        value = fields.get(name)
        if value is not None and not (isinstance(value, str) and _HEX.fullmatch(value)):
            changed[name] = json_bytes(value, name).hex()
    for name in _CHAINS:
        chain = fields.get(name)
        if isinstance(chain, str) and chain.startswith(_ENCODED_CHAIN):
            changed[name] = unquote(chain)
    for name in _ANSWERS:
        changed |= _statement(name, changed)
    return text if changed == fields else json.dumps(changed).encode()


def _statement(name: str, fields: Mapping[str, object]) -> Mapping[str, object]:
    """Return statement and signature if the text is the service's whole response."""
    value, signature = fields.get(name), f"{name}_signature"
    # Encoding it again would change its bytes, and the signature would fail with a
    # misleading reason.
    if isinstance(value, dict):
        raise malformed(_FORM)
    answer = _ANSWERS[name].fullmatch(value) if isinstance(value, str) else None
    if answer is None:
        return {}
    # With two different signatures it is ambiguous which one belongs to the text.
    if fields.get(signature) not in {None, answer[2]}:
        raise malformed(f"{signature}: differs from the one inside {name}")
    return {name: answer[1], signature: answer[2]}
