"""The release manifest: the contents of a published release.

Canonical JSON, so that one release has one leaf in the log. Knows the shape;
that a manifest was logged and is still good is ``verify``'s business.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from curtilage.attest.amd_tcb import Product, Tcb
from curtilage.attest.claims import Measurement
from curtilage.attest.encoding.strict_json import (
    Fields,
    canonical_json,
    malformed,
    parse_object,
)
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import MAX_MANIFEST_BYTES
from curtilage.attest.sandbox import Ephemerality, Isolation, word_of
from curtilage.wire.errors import MalformedError
from curtilage.wire.shaping import Shape, TransportParameters

MANIFEST_VERSION: Final = 3
RESIDENCY_VERSION: Final = 4
"""The version of a manifest with a location; otherwise the same as version 3."""
SANDBOX_VERSION: Final = 5
"""The version of a manifest whose sandbox an enclave proves; otherwise as version 4,
but the location may be empty."""
MAX_MEASUREMENTS: Final = 64
MAX_MODELS: Final = 64
MAX_IMAGES: Final = 16
MAX_REGISTERS: Final = 32
MAX_GPU_VALUES: Final = 64
_TEXT_LIMIT: Final = 256
# A register holds a SHA-256 or a SHA-384.
_REGISTER: Final = re.compile(r"[0-9a-f]{64}|[0-9a-f]{96}")
_REGISTER_NAME: Final = re.compile(r"[a-z][a-z0-9]{0,31}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_SHA256_OR_NONE: Final = re.compile(r"([0-9a-f]{64})?")
# ASCII alone: two names that look alike in a diff must be the same.
_PRINTABLE: Final = re.compile(r"[ -~]{1,256}")
# What a policy can write down, so that no release is beyond being denied.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]{0,127}")
_VERSION: Final = re.compile(r"[!-~]{1,128}")
_OPERATOR: Final = re.compile(r"[ -~]{0,128}")
_COUNTRY: Final = re.compile(r"([A-Z]{2})?")
_REGION: Final = re.compile(r"[!-~]{0,128}")
_TEE: Final = re.compile(r"[a-z0-9-]{1,32}")
_KEYS: Final = (
    "v",
    "name",
    "version",
    "source",
    "images",
    "models",
    "measurements",
    "min_tcb",
    "gpu",
    "sandbox",
    "not_after",
    "transport",
)
_RESIDENCY_KEYS: Final = ("operator", "country", "region")
_MODE_KEYS: Final = ("isolation", "ephemerality")
_ALL_KEYS: Final[Mapping[int, tuple[str, ...]]] = MappingProxyType(
    {
        MANIFEST_VERSION: _KEYS,
        RESIDENCY_VERSION: (*_KEYS, *_RESIDENCY_KEYS),
        SANDBOX_VERSION: (*_KEYS, *_RESIDENCY_KEYS, *_MODE_KEYS),
    }
)
_IMAGE_KEYS: Final = ("name", "sha256")
_GPU_KEYS: Final = ("drivers", "vbioses", "golden")
_TCB_KEYS: Final = ("product", "fmc", "bl", "tee", "snp", "ucode")
_TRANSPORT_KEYS: Final = (
    "shape",
    "frame_bytes",
    "period_ms",
    "first_bucket",
    "buckets",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One file that a release consists of.

    Attributes:
        name: what it is called.
        sha256: lower-case hex.
    """

    name: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRelease:
    """The GPUs that a release may use; an empty list sets no restriction.

    Attributes:
        drivers: driver versions.
        vbioses: VBIOS versions.
        golden: SHA-256 over a GPU's measurement records, lower-case hex.
    """

    drivers: tuple[str, ...] = ()
    vbioses: tuple[str, ...] = ()
    golden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Residency:
    """Location and operator of a release, as its publisher states; "": not stated.

    No hardware proves its location: the statement is public in the log, and that is the
    only thing that binds its author.

    Attributes:
        operator: who runs it; up to 128 printable signs.
        country: ISO 3166-1 alpha-2.
        region: what the operator calls it; up to 128 printable signs, no space.
    """

    operator: str = ""
    country: str = ""
    region: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseManifest:
    """One published release.

    Attributes:
        name: what is released, such as ``curtilage-enclave``; up to 128 letters,
            digits and ``._/+-``.
        version: the release's version; up to 128 printable signs, no space.
        source: the source it was built from, such as a commit.
        measurements: for each kind of evidence the measurements that it may
            show; each names registers and their values in lower-case hex.
        models: SHA-256 of each model file, lower-case hex.
        min_tcb: the lowest patch levels the release may run on, in addition
            to what a policy demands.
        not_after: Unix time at which the release is withdrawn.
        transport: how the release shapes its answers.
        images: the files it consists of.
        gpu: the GPUs it may use, in addition to what a policy demands.
        sandbox: SHA-256 of the description of the sandbox that it loads, lower-case
            hex, or "" where it loads none.
        residency: where it runs, and by whom.
        isolation: what separates the requests that it answers; with a sandbox.
        ephemerality: what becomes of their memory; with a sandbox.
    """

    name: str
    version: str
    source: str
    measurements: Mapping[str, tuple[Measurement, ...]]
    models: tuple[str, ...]
    min_tcb: Mapping[Product, Tcb]
    not_after: int
    transport: TransportParameters
    images: tuple[Image, ...] = ()
    gpu: GpuRelease = field(default_factory=GpuRelease)
    sandbox: str = ""
    residency: Residency = Residency()
    isolation: Isolation | None = None
    ephemerality: Ephemerality | None = None

    def __post_init__(self) -> None:
        """Make the mappings immutable."""
        measured = {
            tee: tuple(MappingProxyType(dict(each)) for each in accepted)
            for tee, accepted in self.measurements.items()
        }
        object.__setattr__(self, "measurements", MappingProxyType(measured))
        object.__setattr__(self, "min_tcb", MappingProxyType(dict(self.min_tcb)))


def encode_manifest(manifest: ReleaseManifest) -> bytes:
    """Encode a manifest; these bytes are the log's leaf."""
    transport, residency = manifest.transport, manifest.residency
    # A manifest without statements keeps its encoding: its digest is in logs,
    # policies and receipts.
    version = MANIFEST_VERSION
    stated: dict[str, str] = {}
    if residency != Residency():
        version = RESIDENCY_VERSION
    if manifest.isolation or manifest.ephemerality:
        version = SANDBOX_VERSION
        stated = {
            "isolation": manifest.isolation or "",
            "ephemerality": manifest.ephemerality or "",
        }
    if version >= RESIDENCY_VERSION:
        stated |= {
            "operator": residency.operator,
            "country": residency.country,
            "region": residency.region,
        }
    return canonical_json(
        {
            **stated,
            "v": version,
            "name": manifest.name,
            "version": manifest.version,
            "source": manifest.source,
            "images": [
                {"name": image.name, "sha256": image.sha256}
                for image in manifest.images
            ],
            "models": list(manifest.models),
            "measurements": {
                tee: [dict(each) for each in accepted]
                for tee, accepted in manifest.measurements.items()
            },
            "min_tcb": [
                {
                    "product": product.value,
                    "fmc": tcb.fmc,
                    "bl": tcb.bl,
                    "tee": tcb.tee,
                    "snp": tcb.snp,
                    "ucode": tcb.ucode,
                }
                # In one order, for the text is compared byte for byte.
                for product, tcb in sorted(manifest.min_tcb.items())
            ],
            "gpu": {
                "drivers": list(manifest.gpu.drivers),
                "vbioses": list(manifest.gpu.vbioses),
                "golden": list(manifest.gpu.golden),
            },
            "sandbox": manifest.sandbox,
            "not_after": manifest.not_after,
            "transport": {
                "shape": transport.shape.value,
                "frame_bytes": transport.frame_bytes,
                "period_ms": transport.period_ms,
                "first_bucket": transport.first_bucket,
                "buckets": transport.buckets,
            },
        }
    )


def parse_manifest(data: bytes) -> ReleaseManifest:
    """Parse a manifest; anything but its canonical encoding is refused.

    Raises:
        RefusedError: ``malformed``, ``too_large`` or ``unsupported_version``.
    """
    # Read as strictly as evidence. Its place in the log is proven by then; its author
    # may still be careless.
    fields = parse_object(data, where="manifest", limit_bytes=MAX_MANIFEST_BYTES)
    # The version first: another version's keys are not "unknown", just others.
    version = fields.integer("v")
    if version not in _ALL_KEYS:
        raise RefusedError(
            RefusalCode.UNSUPPORTED_VERSION,
            f"manifest.v is not {MANIFEST_VERSION} to {SANDBOX_VERSION}",
        )
    # All keys, also the empty ones: an optional key could be omitted to avoid the
    # statement.
    fields.require(_ALL_KEYS[version])
    located = version >= RESIDENCY_VERSION
    isolation, ephemerality = _parse_modes(fields, version)
    manifest = ReleaseManifest(
        name=_named(fields, "name", _NAME),
        version=_named(fields, "version", _VERSION),
        source=_printable(fields, "source"),
        images=_parse_images(fields),
        models=_texts(fields, "models", _SHA256, MAX_MODELS),
        measurements=_parse_measurements(fields.child("measurements")),
        min_tcb=_parse_min_tcb(fields),
        gpu=_parse_gpu(fields.child("gpu")),
        sandbox=_matching(fields, "sandbox", _SHA256_OR_NONE),
        not_after=fields.integer("not_after"),
        transport=_parse_transport(fields.child("transport")),
        residency=_parse_residency(fields) if located else Residency(),
        isolation=isolation,
        ephemerality=ephemerality,
    )
    # One release, one spelling, one leaf. Otherwise a publisher could log the same
    # release twice and deny one of them.
    if encode_manifest(manifest) != data:
        raise malformed("manifest: not in canonical form")
    return manifest


def _printable(fields: Fields, name: str) -> str:
    text = fields.text(name, limit=_TEXT_LIMIT)
    if _PRINTABLE.fullmatch(text) is None:
        raise malformed(f"manifest.{name}: not printable ASCII")
    return text


def _named(fields: Fields, key: str, pattern: re.Pattern[str]) -> str:
    text = fields.text(key, limit=_TEXT_LIMIT)
    # ``fullmatch``: a pattern that only had to occur would let "good\nbad" through.
    if pattern.fullmatch(text) is None:
        raise malformed(f"manifest.{key}: a space, an invalid character, or too long")
    return text


def _matching(fields: Fields, name: str, pattern: re.Pattern[str]) -> str:
    text = fields.text(name, limit=_TEXT_LIMIT)
    if pattern.fullmatch(text) is None:
        raise _not_hex()
    return text


def _texts(
    fields: Fields, name: str, pattern: re.Pattern[str], limit: int
) -> tuple[str, ...]:
    texts = fields.texts(name, limit=limit, item_limit=_TEXT_LIMIT)
    if not all(pattern.fullmatch(text) for text in texts):
        raise (
            _not_hex()
            if pattern is _SHA256
            else malformed("manifest: not printable ASCII")
        )
    return texts


def _not_hex() -> RefusedError:
    return malformed("manifest: not lower-case hex of the right length")


def _parse_images(fields: Fields) -> tuple[Image, ...]:
    entries = fields.children("images", limit=MAX_IMAGES)
    for entry in entries:
        entry.require(_IMAGE_KEYS)
    return tuple(
        Image(
            name=_printable(entry, "name"),
            sha256=_matching(entry, "sha256", _SHA256),
        )
        for entry in entries
    )


def _parse_measurements(fields: Fields) -> dict[str, tuple[Measurement, ...]]:
    # Kinds that are not known yet are let through: an older client reads a newer
    # release, and asks only for kinds that it knows.
    if not all(_TEE.fullmatch(name) for name in fields.names):
        raise malformed("manifest.measurements: not a kind of evidence")
    measurements: dict[str, tuple[Measurement, ...]] = {}
    for tee in fields.names:
        accepted: list[Measurement] = []
        for entry in fields.children(tee, limit=MAX_MEASUREMENTS):
            names = entry.names
            # A measurement that names no register would be matched by every machine.
            if not 1 <= len(names) <= MAX_REGISTERS:
                raise malformed("manifest.measurements: no register, or too many")
            if not all(_REGISTER_NAME.fullmatch(name) for name in names):
                raise malformed("manifest.measurements: not a register's name")
            accepted.append({name: _matching(entry, name, _REGISTER) for name in names})
        measurements[tee] = tuple(accepted)
    return measurements


def _parse_residency(fields: Fields) -> Residency:
    return Residency(
        operator=_named(fields, "operator", _OPERATOR),
        country=_named(fields, "country", _COUNTRY),
        region=_named(fields, "region", _REGION),
    )


def _parse_modes(
    fields: Fields, version: int
) -> tuple[Isolation | None, Ephemerality | None]:
    if version != SANDBOX_VERSION:
        return None, None
    # Without a sandbox nothing would show that the enclave keeps to them.
    _matching(fields, "sandbox", _SHA256)
    return (
        Isolation(word_of(fields, "isolation", Isolation)),
        Ephemerality(word_of(fields, "ephemerality", Ephemerality)),
    )


def _parse_gpu(fields: Fields) -> GpuRelease:
    fields.require(_GPU_KEYS)
    return GpuRelease(
        drivers=_texts(fields, "drivers", _PRINTABLE, MAX_GPU_VALUES),
        vbioses=_texts(fields, "vbioses", _PRINTABLE, MAX_GPU_VALUES),
        golden=_texts(fields, "golden", _SHA256, MAX_GPU_VALUES),
    )


def _parse_min_tcb(fields: Fields) -> dict[Product, Tcb]:
    minimums: dict[Product, Tcb] = {}
    for entry in fields.children("min_tcb", limit=len(Product)):
        entry.require(_TCB_KEYS)
        name = entry.text("product", limit=_TEXT_LIMIT)
        if name not in {product.value for product in Product}:
            raise malformed("manifest.min_tcb: unknown product")
        # The second would win silently, and it could be the lower one.
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
