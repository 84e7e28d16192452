"""The release manifest: which code a published release consists of.

Canonical JSON, so that one release has one leaf in the log. Knows the shape;
that a manifest was logged and is still good is ``verify``'s business.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from curtilage.attest.evidence import MAX_MANIFEST_BYTES
from curtilage.attest.strictjson import (
    Fields,
    canonical_json,
    malformed,
    parse_object,
)
from curtilage.attest.tcb import Product, Tcb
from curtilage.wire.errors import MalformedError
from curtilage.wire.shaping import Shape, TransportParameters

MANIFEST_VERSION: Final = 2
MAX_MEASUREMENTS: Final = 64
MAX_MODELS: Final = 64
_TEXT_LIMIT: Final = 256
_MEASUREMENT: Final = re.compile(r"[0-9a-f]{96}")
_MODEL: Final = re.compile(r"[0-9a-f]{64}")
_PRINTABLE: Final = re.compile(r"[ -~]{1,256}")
_TEE: Final = re.compile(r"[a-z0-9-]{1,32}")
_KEYS: Final = (
    "v",
    "name",
    "version",
    "source",
    "measurements",
    "models",
    "min_tcb",
    "not_after",
    "transport",
)
_TCB_KEYS: Final = ("product", "fmc", "bl", "tee", "snp", "ucode")
_TRANSPORT_KEYS: Final = (
    "shape",
    "frame_bytes",
    "period_ms",
    "first_bucket",
    "buckets",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseManifest:
    """One published release.

    Attributes:
        name: what is released, such as ``curtilage-enclave``.
        version: the release's version.
        source: the source it was built from, such as a commit.
        measurements: for each kind of evidence, the launch measurements in
            lower-case hex; 48 bytes each.
        models: SHA-256 of each model file, lower-case hex.
        min_tcb: the lowest patch levels the release may run on, in addition
            to what a policy demands.
        not_after: Unix time at which the release is withdrawn.
        transport: how the release shapes its answers.
    """

    name: str
    version: str
    source: str
    measurements: Mapping[str, tuple[str, ...]]
    models: tuple[str, ...]
    min_tcb: Mapping[Product, Tcb]
    not_after: int
    transport: TransportParameters

    def __post_init__(self) -> None:
        """Make the mappings immutable, so that nothing changes once parsed."""
        object.__setattr__(
            self, "measurements", MappingProxyType(dict(self.measurements))
        )
        object.__setattr__(self, "min_tcb", MappingProxyType(dict(self.min_tcb)))


def encode_manifest(manifest: ReleaseManifest) -> bytes:
    """Encode a manifest; these bytes are the log's leaf."""
    return canonical_json(
        {
            "v": MANIFEST_VERSION,
            "name": manifest.name,
            "version": manifest.version,
            "source": manifest.source,
            "measurements": {
                tee: list(values) for tee, values in manifest.measurements.items()
            },
            "models": list(manifest.models),
            "min_tcb": [
                _tcb_object(product, tcb)
                for product, tcb in sorted(manifest.min_tcb.items())
            ],
            "not_after": manifest.not_after,
            "transport": _transport_object(manifest.transport),
        }
    )


def parse_manifest(data: bytes) -> ReleaseManifest:
    """Parse a manifest; anything but its canonical encoding is refused."""
    fields = parse_object(data, where="manifest", limit_bytes=MAX_MANIFEST_BYTES)
    fields.require(_KEYS)
    if fields.integer("v") != MANIFEST_VERSION:
        raise malformed(f"manifest.v is not {MANIFEST_VERSION}")
    manifest = ReleaseManifest(
        name=_printable(fields, "name"),
        version=_printable(fields, "version"),
        source=_printable(fields, "source"),
        measurements=_parse_measurements(fields.child("measurements")),
        models=_hex_list(fields, "models", _MODEL, MAX_MODELS),
        min_tcb=_parse_min_tcb(fields),
        not_after=fields.integer("not_after"),
        transport=_parse_transport(fields.child("transport")),
    )
    if encode_manifest(manifest) != data:
        raise malformed("manifest: not in canonical form")
    return manifest


def _tcb_object(product: Product, tcb: Tcb) -> dict[str, str | int]:
    return {
        "product": product.value,
        "fmc": tcb.fmc,
        "bl": tcb.bl,
        "tee": tcb.tee,
        "snp": tcb.snp,
        "ucode": tcb.ucode,
    }


def _transport_object(transport: TransportParameters) -> dict[str, str | int]:
    return {
        "shape": transport.shape.value,
        "frame_bytes": transport.frame_bytes,
        "period_ms": transport.period_ms,
        "first_bucket": transport.first_bucket,
        "buckets": transport.buckets,
    }


def _printable(fields: Fields, name: str) -> str:
    text = fields.text(name, limit=_TEXT_LIMIT)
    if _PRINTABLE.fullmatch(text) is None:
        raise malformed(f"manifest.{name}: not printable ASCII")
    return text


def _hex_list(
    fields: Fields, name: str, pattern: re.Pattern[str], limit: int
) -> tuple[str, ...]:
    texts = fields.texts(name, limit=limit, item_limit=_TEXT_LIMIT)
    if not all(pattern.fullmatch(text) for text in texts):
        raise malformed("manifest: not lower-case hex of the right length")
    return texts


def _parse_measurements(fields: Fields) -> dict[str, tuple[str, ...]]:
    if not all(_TEE.fullmatch(name) for name in fields.names):
        raise malformed("manifest.measurements: not a kind of evidence")
    return {
        name: _hex_list(fields, name, _MEASUREMENT, MAX_MEASUREMENTS)
        for name in fields.names
    }


def _parse_min_tcb(fields: Fields) -> dict[Product, Tcb]:
    minimums: dict[Product, Tcb] = {}
    for entry in fields.children("min_tcb", limit=len(Product)):
        entry.require(_TCB_KEYS)
        name = entry.text("product", limit=_TEXT_LIMIT)
        if name not in {product.value for product in Product}:
            raise malformed("manifest.min_tcb: unknown product")
        if Product(name) in minimums:
            raise malformed("manifest.min_tcb: product named twice")
        minimums[Product(name)] = Tcb(
            fmc=entry.integer("fmc", maximum=255),
            bl=entry.integer("bl", maximum=255),
            tee=entry.integer("tee", maximum=255),
            snp=entry.integer("snp", maximum=255),
            ucode=entry.integer("ucode", maximum=255),
        )
    return minimums


def _parse_transport(fields: Fields) -> TransportParameters:
    fields.require(_TRANSPORT_KEYS)
    shape = fields.text("shape", limit=_TEXT_LIMIT)
    if shape not in {known.value for known in Shape}:
        raise malformed("manifest.transport: unknown shape")
    try:
        return TransportParameters(
            shape=Shape(shape),
            frame_bytes=fields.integer("frame_bytes"),
            period_ms=fields.integer("period_ms"),
            first_bucket=fields.integer("first_bucket"),
            buckets=fields.integer("buckets"),
        )
    except MalformedError:
        raise malformed("manifest.transport: a number out of its range") from None
