"""Evidence as text and tables, as tools write it, and what a refused file raises."""

import base64
import json
import struct
import uuid
from collections.abc import Callable

import pytest

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.cli.attest.encodings import FORMS

VCEK = "63da758d-e664-4564-adc5-f4b93be8accd"
ASK = "4ab7b379-bbac-4fe4-a02f-05aef327c782"
ARK = "c0b406a4-a803-4952-9743-3fb6014cd0ae"
CRL = "92f81bc3-5811-4d3d-97ff-d19f88dc67ea"


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def pem_text(*ders: bytes, label: str = "CERTIFICATE") -> str:
    return "".join(
        f"-----BEGIN {label}-----\n{base64.encodebytes(der).decode()}"
        f"-----END {label}-----\n"
        for der in ders
    )


def pem(*ders: bytes, label: str = "CERTIFICATE") -> bytes:
    return pem_text(*ders, label=label).encode()


def certificate_table(*rows: tuple[str, bytes], swapped: bool = True) -> bytes:
    """The host's table: of each row GUID and data; the GUID's bytes in either order."""
    at, head = 24 * (len(rows) + 1), b""
    for guid, data in rows:
        name = uuid.UUID(guid)
        head += name.bytes_le if swapped else name.bytes
        head += struct.pack("<II", at, len(data))
        at += len(data)
    return head + bytes(24) + b"".join(data for _, data in rows)


def refused(call: Callable[[], object]) -> RefusalCode:
    with pytest.raises(RefusedError) as caught:
        call()
    return caught.value.code


def refused_form(call: Callable[[], object]) -> None:
    """The refusal names the accepted forms."""
    with pytest.raises(RefusedError) as caught:
        call()
    assert caught.value.code is RefusalCode.MALFORMED
    assert FORMS in caught.value.detail
