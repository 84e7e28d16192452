"""Intel's collateral from the recorded answers of its service.

Pure. Each answer is recognised by its address (PCS API, version 4). Statements and
lists are taken over byte by byte, since Intel signed them.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from curtilage.attest.encoding.strict_json import malformed
from curtilage.cli.attest.foreign.reader import Members

_TCB_INFO: Final = re.compile(r"/tdx/certification/v4/tcb$")
_QE_IDENTITY: Final = re.compile(r"/tdx/certification/v4/qe/identity$")
_PCK_CRL: Final = re.compile(r"/sgx/certification/v4/pckcrl$")
_ROOT_CRL: Final = re.compile(r"/IntelSGXRootCA\.(?:der|crl)$")
_MEMBERS: Final[Mapping[str, tuple[re.Pattern[str], str, str]]] = {
    "tcb_info": (_TCB_INFO, "tcb_info_issuer_chain", "tcb-info-issuer-chain"),
    "qe_identity": (
        _QE_IDENTITY,
        "qe_identity_issuer_chain",
        "sgx-enclave-identity-issuer-chain",
    ),
    "pck_crl": (_PCK_CRL, "pck_crl_issuer_chain", "sgx-pck-crl-issuer-chain"),
    "root_ca_crl": (_ROOT_CRL, "", ""),
}


def collateral_of(responses: Iterable[Members]) -> bytes:
    """Return the collateral in the form that ``tdx_collateral`` reads.

    Raises:
        RefusedError: ``malformed``: an answer is repeated, or its issuer chain is
            missing.
    """
    found: dict[str, str] = {}
    for response in responses:
        path = _path(response.text("url"))
        for name, (pattern, chain, header) in _MEMBERS.items():
            if pattern.search(path) is None:
                continue
            # With two answers, the document would choose which statement counts.
            if name in found:
                raise malformed(f"intel-pcs: two answers for {name}")
            body = response.base64("body_base64")
            found[name] = _body(name, body)
            if chain:
                found[chain] = unquote(_header(response.child("headers"), header))
    return json.dumps(found).encode()


def _path(url: str) -> str:
    try:
        return urlsplit(url).path
    except ValueError:
        raise malformed("intel-pcs: not an address") from None


def _body(name: str, body: bytes) -> str:
    if name.endswith("crl"):
        return body.hex()
    try:
        return body.decode("ascii")
    except ValueError:
        raise malformed(f"intel-pcs: {name} is not text") from None


def _header(headers: Members, wanted: str) -> str:
    names = [name for name in headers.names if name.lower() == wanted]
    if len(names) != 1:
        raise malformed(f"intel-pcs: not exactly one {wanted}")
    values = headers.texts(names[0], limit=1)
    return "".join(values)
