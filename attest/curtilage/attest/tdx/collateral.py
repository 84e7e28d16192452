"""Intel's statements about a platform, as the JSON that is stapled to a quote.

The envelope is what ``dcap-qvl`` calls ``QuoteCollateralV3``: two revocation
lists and two signatures in hex, three PEM chains, and two JSON texts that Intel
signed exactly as they stand. The envelope is strict. The signed texts are read
strictly too, except that keys which are not known here are passed over: Intel
may add some, and has signed them. Shape only; nothing is verified.

Source: Intel, "API for Intel SGX and TDX Provisioning Certification Service",
version 4: "Get TDX TCB Info" (TCB info version 3) and "Get TDX Quoting Enclave
Identity" (enclave identity version 2; version 3 has the same fields).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, TypeVar

from curtilage.attest.encoding.strict_json import Fields, malformed, parse_object
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import MAX_COLLATERAL_BYTES, MAX_CRL_BYTES

SIGNATURE_BYTES: Final = 64
COMPONENTS: Final = 16
TDX_ID: Final = "TDX"
QE_ID: Final = "TD_QE"
TCB_INFO_VERSION: Final = 3
# How levels are compared; there is one way.
TCB_TYPE: Final = 0
QE_IDENTITY_VERSIONS: Final = frozenset({2, 3})

# Two certificates take 1900 bytes.
_MAX_CHAIN_BYTES: Final = 8192
# A TCB info takes 2 to 12 KB, an identity 500 bytes.
_MAX_SIGNED_BYTES: Final = 40 * 1024
# 36 objects and arrays for each of at most 64 levels, and the modules'.
_MAX_OPENED: Final = 4096
_MAX_LEVELS: Final = 64
_MAX_MODULES: Final = 64
_MAX_ADVISORIES: Final = 256
_MAX_WORD_BYTES: Final = 64
_MAX_SVN: Final = 0xFF
_MAX_ISVSVN: Final = 0xFFFF
_MAX_EVALUATION_NUMBER: Final = 0xFFFF_FFFF

# The names are those of the library's ``QuoteCollateralV3``, so that what is stapled
# can be given to other tools as it is.
_KEYS: Final = (
    "pck_crl_issuer_chain",
    "tcb_info_issuer_chain",
    "tcb_info",
    "tcb_info_signature",
    "qe_identity_issuer_chain",
    "qe_identity",
    "qe_identity_signature",
)
# A missing list has a step and a code of its own.
_LISTS: Final = ("root_ca_crl", "pck_crl")
# Later versions of the format carry the PCK chain again; a quote of type 5 has
# it inside, and no other kind is accepted.
_IGNORED: Final = "pck_certificate_chain"
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_HEX: Final = re.compile(r"(?:[0-9A-Fa-f]{2})*")

_ValueT = TypeVar("_ValueT")


class TcbStatus(StrEnum):
    """Intel's TCB statuses of a platform, a module or an enclave."""

    UP_TO_DATE = "UpToDate"
    SW_HARDENING_NEEDED = "SWHardeningNeeded"
    CONFIGURATION_NEEDED = "ConfigurationNeeded"
    CONFIGURATION_AND_SW_HARDENING_NEEDED = "ConfigurationAndSWHardeningNeeded"
    OUT_OF_DATE = "OutOfDate"
    OUT_OF_DATE_CONFIGURATION_NEEDED = "OutOfDateConfigurationNeeded"
    REVOKED = "Revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class TcbLevel:
    """One level of a platform.

    Attributes:
        sgx: lowest security version of each of the 16 SGX components.
        pcesvn: lowest security version of the provisioning enclave.
        tdx: the same for the 16 TDX components; empty in an SGX level.
        status: what a platform at this level is.
        advisories: the security advisories that concern it.
    """

    sgx: tuple[int, ...]
    pcesvn: int
    tdx: tuple[int, ...]
    status: TcbStatus
    advisories: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SvnLevel:
    """One level of a TDX module or of a quoting enclave.

    Attributes:
        isvsvn: the lowest security version.
        status: what is at this level.
        advisories: the security advisories that concern it.
    """

    isvsvn: int
    status: TcbStatus
    advisories: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TdxModule:
    """The identity of a genuine TDX module.

    Attributes:
        name: ``TDX_01`` and so on; empty for the module before there were
            several.
        mrsigner: 48 bytes.
        attributes: 8 bytes, after masking.
        mask: 8 bytes.
        levels: highest first; empty for the module without a name.
    """

    name: str
    mrsigner: bytes
    attributes: bytes
    mask: bytes
    levels: tuple[SvnLevel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TcbInfo:
    """Intel's statement about all platforms of one FMSPC.

    Attributes:
        name: ``TDX``, or ``SGX`` for another kind of evidence.
        issued: when it was made.
        next_update: until when it is current.
        fmspc: 6 bytes.
        pce_id: 2 bytes.
        evaluation_number: grows with every round of updates.
        module: the module without a name, or None in an SGX statement.
        modules: the named modules.
        levels: highest first.
    """

    name: str
    issued: datetime
    next_update: datetime
    fmspc: bytes
    pce_id: bytes
    evaluation_number: int
    module: TdxModule | None
    modules: tuple[TdxModule, ...]
    levels: tuple[TcbLevel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QeIdentity:
    """Intel's statement about its quoting enclave.

    Attributes:
        name: ``TD_QE``, or ``QE`` for SGX.
        issued: when it was made.
        next_update: until when it is current.
        evaluation_number: grows with every round of updates.
        miscselect: 4 bytes as they stand in a report, after masking.
        miscselect_mask: 4 bytes.
        attributes: 16 bytes, after masking.
        attributes_mask: 16 bytes.
        mrsigner: 32 bytes.
        isvprodid: the product's number.
        levels: highest first.
    """

    name: str
    issued: datetime
    next_update: datetime
    evaluation_number: int
    miscselect: bytes
    miscselect_mask: bytes
    attributes: bytes
    attributes_mask: bytes
    mrsigner: bytes
    isvprodid: int
    levels: tuple[SvnLevel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Collateral:
    """Everything that is stapled to a quote; unverified.

    Attributes:
        root_ca_crl: the root's revocation list, DER; empty if missing.
        pck_crl: the PCK authority's revocation list, DER; empty if missing.
        pck_crl_chain: PEM, the PCK authority first.
        tcb_info: the bytes that Intel signed.
        tcb_info_signature: r and s, 32 bytes each.
        tcb_info_chain: PEM, the signer first.
        qe_identity: the bytes that Intel signed.
        qe_identity_signature: r and s, 32 bytes each.
        qe_identity_chain: PEM, the signer first.
        tcb: what ``tcb_info`` says.
        qe: what ``qe_identity`` says.
    """

    root_ca_crl: bytes = field(repr=False)
    pck_crl: bytes = field(repr=False)
    pck_crl_chain: str = field(repr=False)
    tcb_info: str = field(repr=False)
    tcb_info_signature: bytes = field(repr=False)
    tcb_info_chain: str = field(repr=False)
    qe_identity: str = field(repr=False)
    qe_identity_signature: bytes = field(repr=False)
    qe_identity_chain: str = field(repr=False)
    tcb: TcbInfo
    qe: QeIdentity


def masked(value: bytes, mask: bytes) -> bytes:
    """Return the bits of a report's field that a mask of Intel's lets through.

    Raises:
        ValueError: the two differ in length.
    """
    return bytes(a & b for a, b in zip(value, mask, strict=True))


def parse_collateral(data: bytes) -> Collateral:
    """Parse collateral; form and sizes only.

    Raises:
        RefusedError: ``malformed`` or ``too_large`` for the envelope,
            ``collateral_invalid`` for none at all and for a signed text that
            Intel cannot have written, ``unsupported_version`` for another
            version of one.
    """
    # A code of its own: a server that staples nothing is misconfigured, one that
    # staples nonsense is something else.
    if not data:
        raise RefusedError(RefusalCode.COLLATERAL_INVALID, "none was served")
    fields = parse_object(
        data,
        where="collateral",
        limit_bytes=MAX_COLLATERAL_BYTES,
        max_opened=_MAX_OPENED,
    )
    present = set(fields.names)
    # Exactly these keys. A key that is not read here is either a mistake, or meant for
    # a reader that interprets it differently.
    fields.require({*_KEYS, *(present & {*_LISTS, _IGNORED})})
    # Kept as the text that came: the signature is over these very bytes, and JSON that
    # was read and written again has others.
    tcb_info = fields.text("tcb_info", limit=_MAX_SIGNED_BYTES)
    qe_identity = fields.text("qe_identity", limit=_MAX_SIGNED_BYTES)
    return Collateral(
        root_ca_crl=_list(fields, "root_ca_crl"),
        pck_crl=_list(fields, "pck_crl"),
        pck_crl_chain=fields.text("pck_crl_issuer_chain", limit=_MAX_CHAIN_BYTES),
        tcb_info=tcb_info,
        tcb_info_signature=_hex(fields, "tcb_info_signature", SIGNATURE_BYTES),
        tcb_info_chain=fields.text("tcb_info_issuer_chain", limit=_MAX_CHAIN_BYTES),
        qe_identity=qe_identity,
        qe_identity_signature=_hex(fields, "qe_identity_signature", SIGNATURE_BYTES),
        qe_identity_chain=fields.text(
            "qe_identity_issuer_chain", limit=_MAX_CHAIN_BYTES
        ),
        tcb=_signed("TCB info", tcb_info, _parse_tcb_info),
        qe=_signed("QE identity", qe_identity, _parse_qe_identity),
    )


def _list(fields: Fields, name: str) -> bytes:
    # No list is no error here: the revocation step refuses it with a code of its own.
    if name not in fields.names:
        return b""
    text = fields.text(name, limit=2 * MAX_CRL_BYTES)
    if not _HEX.fullmatch(text):
        raise RefusedError(RefusalCode.CRL_INVALID, f"collateral.{name}: not hex")
    return bytes.fromhex(text)


def _signed(name: str, text: str, parse: Callable[[Fields], _ValueT]) -> _ValueT:
    """Parse a signed text; a malformed one was not written by Intel."""
    try:
        return parse(
            parse_object(
                text.encode("utf-8"),
                where=name,
                limit_bytes=_MAX_SIGNED_BYTES,
                max_opened=_MAX_OPENED,
            )
        )
    except RefusedError as error:
        # Intel may publish a new version any day: that is no forgery, and calls for an
        # update of this program.
        if error.code is RefusalCode.UNSUPPORTED_VERSION:
            raise
        raise RefusedError(RefusalCode.COLLATERAL_INVALID, error.detail) from None


def _parse_tcb_info(fields: Fields) -> TcbInfo:
    # Before any other key is read: in another version they mean other things.
    if fields.integer("version") != TCB_INFO_VERSION:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_VERSION,
            f"TCB info: version is not {TCB_INFO_VERSION}",
        )
    # Which algorithm compares levels. One that is not known must not be guessed.
    if fields.integer("tcbType") != TCB_TYPE:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_VERSION, f"TCB info: type is not {TCB_TYPE}"
        )
    return TcbInfo(
        name=fields.text("id", limit=_MAX_WORD_BYTES),
        issued=_date(fields, "issueDate"),
        next_update=_date(fields, "nextUpdate"),
        fmspc=_hex(fields, "fmspc", 6),
        pce_id=_hex(fields, "pceId", 2),
        evaluation_number=_evaluation_number(fields),
        # Both forms at once: Intel keeps the unnamed module for platforms that were
        # made before there were several. SGX's statement has neither; it is refused by
        # its id, with a better word than "malformed".
        module=(
            _module(fields.child("tdxModule"), name="", levels=())
            if "tdxModule" in fields.names
            else None
        ),
        modules=tuple(
            _module(
                module,
                name=module.text("id", limit=_MAX_WORD_BYTES),
                levels=_svn_levels(module),
            )
            for module in (
                fields.children("tdxModuleIdentities", limit=_MAX_MODULES)
                if "tdxModuleIdentities" in fields.names
                else ()
            )
        ),
        levels=tuple(
            _tcb_level(level)
            for level in fields.children("tcbLevels", limit=_MAX_LEVELS)
        ),
    )


def _module(fields: Fields, *, name: str, levels: tuple[SvnLevel, ...]) -> TdxModule:
    return TdxModule(
        name=name,
        mrsigner=_hex(fields, "mrsigner", 48),
        attributes=_hex(fields, "attributes", 8),
        mask=_hex(fields, "attributesMask", 8),
        levels=levels,
    )


def _tcb_level(fields: Fields) -> TcbLevel:
    tcb = fields.child("tcb")
    tdx = "tdxtcbcomponents" in tcb.names
    return TcbLevel(
        sgx=_components(tcb, "sgxtcbcomponents"),
        pcesvn=tcb.integer("pcesvn", maximum=_MAX_ISVSVN),
        tdx=_components(tcb, "tdxtcbcomponents") if tdx else (),
        status=_status(fields),
        advisories=_advisories(fields),
    )


def _components(fields: Fields, name: str) -> tuple[int, ...]:
    # Each component is an object with a number and words about it; only the number is
    # compared.
    components = fields.children(name, limit=COMPONENTS)
    # Fewer would be compared with as many of the platform's and leave the rest unlooked
    # at.
    if len(components) != COMPONENTS:
        raise malformed(f"TCB info: not {COMPONENTS} components")
    return tuple(each.integer("svn", maximum=_MAX_SVN) for each in components)


def _parse_qe_identity(fields: Fields) -> QeIdentity:
    if fields.integer("version") not in QE_IDENTITY_VERSIONS:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_VERSION, "QE identity: version is not 2 or 3"
        )
    return QeIdentity(
        name=fields.text("id", limit=_MAX_WORD_BYTES),
        issued=_date(fields, "issueDate"),
        next_update=_date(fields, "nextUpdate"),
        evaluation_number=_evaluation_number(fields),
        miscselect=_hex(fields, "miscselect", 4),
        miscselect_mask=_hex(fields, "miscselectMask", 4),
        attributes=_hex(fields, "attributes", 16),
        attributes_mask=_hex(fields, "attributesMask", 16),
        mrsigner=_hex(fields, "mrsigner", 32),
        isvprodid=fields.integer("isvprodid", maximum=_MAX_ISVSVN),
        levels=_svn_levels(fields),
    )


def _svn_levels(fields: Fields) -> tuple[SvnLevel, ...]:
    return tuple(
        SvnLevel(
            isvsvn=level.child("tcb").integer("isvsvn", maximum=_MAX_ISVSVN),
            status=_status(level),
            advisories=_advisories(level),
        )
        for level in fields.children("tcbLevels", limit=_MAX_LEVELS)
    )


def _evaluation_number(fields: Fields) -> int:
    return fields.integer("tcbEvaluationDataNumber", maximum=_MAX_EVALUATION_NUMBER)


def _status(fields: Fields) -> TcbStatus:
    try:
        # A word that Intel may invent later is no status that a policy could have
        # accepted.
        return TcbStatus(fields.text("tcbStatus", limit=_MAX_WORD_BYTES))
    except ValueError:
        raise malformed("an unknown TCB status") from None


def _advisories(fields: Fields) -> tuple[str, ...]:
    if "advisoryIDs" not in fields.names:
        return ()
    return fields.texts(
        "advisoryIDs", limit=_MAX_ADVISORIES, item_limit=_MAX_WORD_BYTES
    )


def _hex(fields: Fields, name: str, count: int) -> bytes:
    text = fields.text(name, limit=2 * count)
    # ``bytes.fromhex`` lets blanks through, so the pattern comes first.
    if len(text) != 2 * count or not _HEX.fullmatch(text):
        raise malformed(f"{name}: not {count} bytes in hex")
    return bytes.fromhex(text)


def _date(fields: Fields, name: str) -> datetime:
    text = fields.text(name, limit=_MAX_WORD_BYTES)
    # One form: ``strptime`` alone takes single digits and other digits than ASCII's.
    if not _DATE.fullmatch(text):
        raise malformed(f"{name}: not a date")
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise malformed(f"{name}: not a date") from None
