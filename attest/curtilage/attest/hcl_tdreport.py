"""The layout of an Intel TDREPORT, as far as a TD quote repeats it.

1024 bytes (Intel TDX Module ABI, TDREPORT_STRUCT): REPORTMACSTRUCT 256,
TEE_TCB_INFO 239, reserved 17, TDINFO 512. Its MAC can be checked only on the
machine that made it, so nothing in it is believed: what it says must stand in
a verified quote too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from curtilage.attest.strictjson import malformed

TD_REPORT_BYTES: Final = 1024
TEE_TYPE_TDX: Final = 0x81
REPORT_DATA_AT: Final = 128
REPORT_DATA_BYTES: Final = 64
DIGEST_BYTES: Final = 48
# In TDINFO, after the attributes and XFAM, 8 bytes each; in this order.
REGISTERS_AT: Final = 512 + 16
REGISTERS: Final = (
    "mrtd",
    "mrconfigid",
    "mrowner",
    "mrownerconfig",
    "rtmr0",
    "rtmr1",
    "rtmr2",
    "rtmr3",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TdReport:
    """The fields of a TDREPORT that a quote repeats; unverified.

    Attributes:
        report_data: 64 bytes that the guest chose.
        registers: the measurement registers by name, lower-case hex.
    """

    report_data: bytes
    registers: Mapping[str, str] = field(repr=False)


def parse_td_report(data: bytes) -> TdReport:
    """Read a TDREPORT; shape only.

    Raises:
        RefusedError: ``malformed``: another length, or no TDX report.
    """
    if len(data) != TD_REPORT_BYTES:
        raise malformed(f"TDREPORT has {len(data)} bytes, not {TD_REPORT_BYTES}")
    if data[0] != TEE_TYPE_TDX:
        raise malformed("TDREPORT: other type")
    registers = {
        name: data[start : start + DIGEST_BYTES].hex()
        for name, start in zip(
            REGISTERS,
            range(REGISTERS_AT, TD_REPORT_BYTES, DIGEST_BYTES),
            strict=False,
        )
    }
    return TdReport(
        report_data=data[REPORT_DATA_AT : REPORT_DATA_AT + REPORT_DATA_BYTES],
        registers=registers,
    )
