"""Intel's collateral, as those write it who copy it from Intel's service.

Pure. The form is the JSON that dcap-qvl calls ``QuoteCollateralV3``. Intel's
service and its caches give revocation lists as PEM or base64 of DER, issuer
chains percent-encoded (they are values of HTTP fields), and a statement together
with its signature; others write bytes as numbers, or put the whole beneath the key
``collateral``. Each of these is told exactly, and put into the one form; a file that
needs none of it stays as it is, byte for byte. A statement's text is never touched:
the signature is over its very letters. Where it is an object and no text, it is
written as Intel writes it, without blanks; a file in which its members were sorted or
numbers rewritten cannot verify any more.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, cast
from urllib.parse import unquote

from curtilage.attest.errors import RefusedError
from curtilage.cli.attest.encodings import (
    BOM,
    decode_der,
    decode_json,
    json_bytes,
)

_CRLS: Final = ("root_ca_crl", "pck_crl")
_CHAINS: Final = (
    "pck_crl_issuer_chain",
    "tcb_info_issuer_chain",
    "qe_identity_issuer_chain",
    "pck_certificate_chain",
)
_ENCODED_CHAIN: Final = "-----BEGIN%20CERTIFICATE-----"
_WRAPPER: Final = "collateral"
_HEX: Final = re.compile(r"(?:[0-9A-Fa-f]{2})+")
# A statement and its signature, as the service answers (PCS API, "Get TDX TCB
# Info" and "Get TDX QE identity"): the statement's letters are those within.
_SIGNED: Final[Mapping[str, tuple[str, re.Pattern[str]]]] = {
    name: (
        f"{name}_signature",
        re.compile(
            rf'\{{"{member}":(\{{.*\}}),"signature":"([0-9A-Fa-f]{{128}})"\}}\s*',
            re.DOTALL,
        ),
    )
    for name, member in (("tcb_info", "tcbInfo"), ("qe_identity", "enclaveIdentity"))
}


def read_collateral(file: bytes) -> bytes:
    """Return the collateral in the form that the verifier reads.

    A file that is no such JSON is returned as it is, for the verifier to refuse.
    """
    data = file.removeprefix(BOM).strip()
    fields = _fields(data)
    if fields is None:
        return data
    inner = fields.get(_WRAPPER)
    if isinstance(inner, dict) and fields.keys().isdisjoint(_SIGNED):
        fields, changed = cast("dict[str, object]", inner), True
    else:
        changed = False
    # What stands in another form than the one that is asked for; the rest is not read.
    changes: dict[str, object] = {}
    for name in _CRLS:
        changes |= _crl(name, fields.get(name))
    for name in _CHAINS:
        chain = fields.get(name)
        if isinstance(chain, str) and chain.startswith(_ENCODED_CHAIN):
            changes[name] = unquote(chain, errors="strict")
    for name in _SIGNED:
        changes |= _statement(name, fields)
    return json.dumps({**fields, **changes}).encode() if changes or changed else data


def has_statement_objects(file: bytes) -> bool:
    """Tell whether a statement is an object there: what Intel signed is a text."""
    fields = _fields(file.removeprefix(BOM).strip()) or {}
    inner = fields.get(_WRAPPER)
    holder = cast("dict[str, object]", inner) if isinstance(inner, dict) else fields
    return any(isinstance(holder.get(name), dict) for name in _SIGNED)


def _fields(data: bytes) -> dict[str, object] | None:
    """Return the collateral's members, or None where it is no JSON object."""
    try:
        return decode_json(data, "collateral") if data.startswith(b"{") else None
    except RefusedError:
        return None


def _statement(name: str, fields: Mapping[str, object]) -> dict[str, object]:
    """Return a statement and its signature, as far as they are in another form."""
    signature, whole = _SIGNED[name]
    changes: dict[str, object] = {}
    value, given = fields.get(name), fields.get(signature)
    if isinstance(fields.get(signature), list):
        # The signature's bytes as numbers, one after the other.
        with suppress(RefusedError):
            changes[signature] = json_bytes(given, signature).hex()
    if isinstance(value, dict):
        value = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        changes[name] = value
    # A service's whole answer holds the signature, too. One that is given beside it and
    # is another stays: which of them was meant, nobody can tell.
    answer = whole.fullmatch(value) if isinstance(value, str) else None
    if answer is not None and changes.get(signature, given) in (None, answer[2]):
        changes |= {name: answer[1], signature: answer[2]}
    return changes


def _crl(name: str, value: object) -> dict[str, object]:
    if value is None or (isinstance(value, str) and _HEX.fullmatch(value)):
        return {}
    try:
        return {name: decode_der(json_bytes(value, name), name).hex()}
    except RefusedError:
        return {}
