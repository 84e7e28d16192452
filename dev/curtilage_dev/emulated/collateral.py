"""Emulated statements about platforms: TCB info and QE identity, before signing.

Fields are those that ``attest`` reads, so that each can be changed and still be validly
signed. The result is the JSON text that is signed.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from curtilage.attest.tdx.collateral import SvnLevel, TcbLevel, TcbStatus, TdxModule

LEVEL_SVNS: Final = (3, 3, 2, 2, 4, 1, 0, 5, *(0,) * 8)
OLDER_SVNS: Final = (2, 2, 2, 2, 3, 1, 0, 5, *(0,) * 8)
LEVEL_TDX_SVNS: Final = (5, 0, 3, *(0,) * 13)
OLDER_TDX_SVNS: Final = (5, 0, 2, *(0,) * 13)
PCESVN: Final = 13
EVALUATION_NUMBER: Final = 18
# The signer of the genuine TD quoting enclave: its identity names it, and so does
# the emulated one's, since it is not checked against anything else.
QE_MRSIGNER: Final = bytes.fromhex(
    "dc9e2a7c6f948f17474e34a7fc43ed030f7c1563f1babddf6340c82e0e54a8c5"
)


def default_levels() -> tuple[TcbLevel, ...]:
    """Return two levels: one that is current, and one that is not."""
    return (
        TcbLevel(
            sgx=LEVEL_SVNS,
            pcesvn=PCESVN,
            tdx=LEVEL_TDX_SVNS,
            status=TcbStatus.UP_TO_DATE,
            advisories=(),
        ),
        TcbLevel(
            sgx=OLDER_SVNS,
            pcesvn=PCESVN - 2,
            tdx=OLDER_TDX_SVNS,
            status=TcbStatus.OUT_OF_DATE,
            advisories=("INTEL-SA-EMULATED-1",),
        ),
    )


def make_module(name: str, levels: Iterable[tuple[int, TcbStatus]]) -> TdxModule:
    """Return a TDX module of Intel's with the given levels."""
    return TdxModule(
        name=name,
        mrsigner=bytes(48),
        attributes=bytes(8),
        mask=b"\xff" * 8,
        levels=tuple(
            SvnLevel(isvsvn=isvsvn, status=status, advisories=())
            for isvsvn, status in levels
        ),
    )


UNNAMED_MODULE: Final = make_module("", ())
NAMED_MODULE: Final = make_module("TDX_01", ((6, TcbStatus.UP_TO_DATE),))
DEFAULT_LEVELS: Final = default_levels()


@dataclass(frozen=True, slots=True, kw_only=True)
class TcbInfoFields:
    """The content of a TCB info, before it is signed; as ``attest`` reads it."""

    name: str = "TDX"
    version: int = 3
    issued: datetime
    next_update: datetime
    fmspc: bytes
    pce_id: bytes
    evaluation_number: int = EVALUATION_NUMBER
    module: TdxModule = UNNAMED_MODULE
    modules: tuple[TdxModule, ...] = (NAMED_MODULE,)
    levels: tuple[TcbLevel, ...] = DEFAULT_LEVELS


@dataclass(frozen=True, slots=True, kw_only=True)
class QeIdentityFields:
    """The content of a QE identity, before it is signed; as ``attest`` reads it."""

    name: str = "TD_QE"
    version: int = 2
    issued: datetime
    next_update: datetime
    evaluation_number: int = EVALUATION_NUMBER
    miscselect: bytes = bytes(4)
    miscselect_mask: bytes = b"\xff" * 4
    attributes: bytes = b"\x11" + bytes(15)
    attributes_mask: bytes = b"\xfb" + b"\xff" * 7 + bytes(8)
    mrsigner: bytes = QE_MRSIGNER
    isvprodid: int = 2
    levels: tuple[SvnLevel, ...] = (
        SvnLevel(isvsvn=4, status=TcbStatus.UP_TO_DATE, advisories=()),
    )


def encode_tcb_info(fields: TcbInfoFields) -> str:
    """Return a TCB info as the JSON text that is signed."""
    return _dump(
        {
            "id": fields.name,
            "version": fields.version,
            "issueDate": _date(fields.issued),
            "nextUpdate": _date(fields.next_update),
            "fmspc": fields.fmspc.hex().upper(),
            "pceId": fields.pce_id.hex().upper(),
            "tcbType": 0,
            "tcbEvaluationDataNumber": fields.evaluation_number,
            "tdxModule": _module_object(fields.module),
            "tdxModuleIdentities": [
                {
                    "id": each.name,
                    **_module_object(each),
                    "tcbLevels": [_svn_level(level) for level in each.levels],
                }
                for each in fields.modules
            ],
            "tcbLevels": [_tcb_level(level) for level in fields.levels],
        }
    )


def encode_qe_identity(fields: QeIdentityFields) -> str:
    """Return a QE identity as the JSON text that is signed."""
    return _dump(
        {
            "id": fields.name,
            "version": fields.version,
            "issueDate": _date(fields.issued),
            "nextUpdate": _date(fields.next_update),
            "tcbEvaluationDataNumber": fields.evaluation_number,
            "miscselect": fields.miscselect.hex().upper(),
            "miscselectMask": fields.miscselect_mask.hex().upper(),
            "attributes": fields.attributes.hex().upper(),
            "attributesMask": fields.attributes_mask.hex().upper(),
            "mrsigner": fields.mrsigner.hex().upper(),
            "isvprodid": fields.isvprodid,
            "tcbLevels": [_svn_level(level) for level in fields.levels],
        }
    )


def _module_object(module: TdxModule) -> dict[str, object]:
    return {
        "mrsigner": module.mrsigner.hex().upper(),
        "attributes": module.attributes.hex().upper(),
        "attributesMask": module.mask.hex().upper(),
    }


def _tcb_level(level: TcbLevel) -> dict[str, object]:
    tcb: dict[str, object] = {
        "sgxtcbcomponents": [{"svn": svn} for svn in level.sgx],
        "pcesvn": level.pcesvn,
    }
    if level.tdx:
        tcb["tdxtcbcomponents"] = [{"svn": svn} for svn in level.tdx]
    return {"tcb": tcb, **_judged(level)}


def _svn_level(level: SvnLevel) -> dict[str, object]:
    return {"tcb": {"isvsvn": level.isvsvn}, **_judged(level)}


def _judged(level: TcbLevel | SvnLevel) -> dict[str, object]:
    advisories = {"advisoryIDs": list(level.advisories)} if level.advisories else {}
    return {
        "tcbDate": "2026-01-01T00:00:00Z",
        "tcbStatus": level.status.value,
        **advisories,
    }


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _date(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
