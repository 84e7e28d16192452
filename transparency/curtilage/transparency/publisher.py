"""Builds a release manifest from files and options; explains what is wrong.

Digests of large files are computed here, with progress; measurements are read from the
JSON that the image's build prints. The encoding and its rules are in
``attest.manifest``, which has parsed every manifest that this module returns.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, cast

from curtilage.attest.amd_tcb import Product, Tcb
from curtilage.attest.claims import Measurement, measurement_problem
from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import Tee
from curtilage.attest.log.manifest import (
    Image,
    ReleaseManifest,
    encode_manifest,
    parse_manifest,
)
from curtilage.transparency.errors import FileError, InputError
from curtilage.transparency.files import read_bounded

MAX_MEASUREMENTS_BYTES: Final = 1024 * 1024
CHUNK_BYTES: Final = 1 << 20
MAX_DAYS: Final = 3660
_DIGEST: Final = re.compile(r"(?:sha256:)?([0-9a-fA-F]{64})")
_DAYS: Final = re.compile(r"\+([0-9]{1,4})d")
_LEVEL: Final = re.compile(r"(fmc|bl|tee|snp|ucode)=([0-9]{1,3})")
_LEVELS: Final = ("bl", "tee", "snp", "ucode")
_MAX_LEVEL: Final = 255

Hashed = Callable[[str, int, int], None]
"""Called with a file's name, the number of bytes hashed so far, and the total."""


def unhashed(name: str, done: int, total: int) -> None:
    """Report nothing."""
    del name, done, total


def digest_of(text: str, progress: Hashed = unhashed) -> str:
    """Return the digest in an option: given as digits, or computed from a file.

    Args:
        text: 64 hex digits, with or without ``sha256:`` before them, or a path.
        progress: called about twice per second of reading.

    Raises:
        FileError: it is neither, or the file cannot be read.
    """
    match = _DIGEST.fullmatch(text)
    if match is not None:
        return match[1].lower()
    path = Path(text)
    if not path.is_file():
        raise FileError(f"{text}: neither 64 hex digits nor a file")
    digest = hashlib.sha256()
    try:
        total = path.stat().st_size
        with path.open("rb") as file:
            done = 0
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
                done += len(chunk)
                progress(path.name, done, total)
    except OSError as failure:
        raise FileError(f"{path}: {failure.strerror}") from None
    return digest.hexdigest()


def image_of(text: str, progress: Hashed = unhashed) -> Image:
    """Read ``NAME=FILE`` or ``NAME=sha256:HEX``; a file alone has its own name.

    Raises:
        FileError: see ``digest_of``.
    """
    name, equals, value = text.partition("=")
    if not equals:
        name, value = Path(text).name, text
    return Image(name=name, sha256=digest_of(value, progress))


def measurements_of(
    paths: Iterable[Path],
) -> dict[str, tuple[Measurement, ...]]:
    """Read measurements in the form that the image's build prints, without duplicates.

    Each file is a JSON object from a kind of evidence to a set of registers, or to a
    list of them: ``{"sev-snp": [{"launch": "…"}], "tpm": [{"pcr11": "…"}]}``.

    Raises:
        FileError: names the file, and the wrong kind.
    """
    found: dict[str, list[Measurement]] = {}
    for path in paths:
        for kind, measurement in _measurements_in(path):
            known = found.setdefault(kind, [])
            if measurement not in known:
                known.append(measurement)
    return {kind: tuple(known) for kind, known in found.items()}


def min_tcb_of(text: str) -> tuple[Product, Tcb]:
    """Read ``Genoa:bl=10,tee=0,snp=27,ucode=86``; Turin has ``fmc`` too.

    Raises:
        InputError: it has another form.
    """
    name, _, rest = text.partition(":")
    products = {product.value: product for product in Product}
    levels = {
        match[1]: int(match[2])
        for each in rest.split(",")
        if (match := _LEVEL.fullmatch(each.strip()))
    }
    given = len(rest.split(","))
    complete = set(_LEVELS) <= set(levels) and len(levels) == given
    if name not in products or not complete or max(levels.values()) > _MAX_LEVEL:
        raise InputError(
            f"--min-tcb {text!r}: such as Genoa:bl=10,tee=0,snp=27,ucode=86 "
            f"(products: {', '.join(products)}; Turin has fmc too)"
        )
    product = products[name]
    if (product is Product.TURIN) != ("fmc" in levels):
        raise InputError("--min-tcb: fmc is required for Turin, and only there")
    tcb = Tcb(
        fmc=levels.get("fmc", 0),
        bl=levels["bl"],
        tee=levels["tee"],
        snp=levels["snp"],
        ucode=levels["ucode"],
    )
    return product, tcb


def moment_of(text: str, now: datetime) -> int:
    """Read a time, RFC 3339 or ``+180d`` from now, as Unix seconds.

    Raises:
        InputError: it is neither, or has passed, or is more than ten years away.
    """
    days = _DAYS.fullmatch(text)
    try:
        moment = (
            now + timedelta(days=int(days[1])) if days else datetime.fromisoformat(text)
        )
    except ValueError:
        raise InputError(_no_time(text)) from None
    if moment.tzinfo is None:
        raise InputError(_no_time(text))
    if not now < moment <= now + timedelta(days=MAX_DAYS):
        raise InputError("--not-after: within the next ten years")
    return int(moment.astimezone(UTC).timestamp())


def encoded(manifest: ReleaseManifest) -> bytes:
    """Return the canonical bytes; the parser decides whether they are valid.

    Raises:
        InputError: it contains something that no manifest may contain.
    """
    for kind, accepted in manifest.measurements.items():
        for measurement in accepted:
            _require_measurement(kind, measurement, "--measurements")
    data = encode_manifest(manifest)
    try:
        parse_manifest(data)
    except RefusedError as refusal:
        raise InputError(f"not a manifest: {refusal.detail}") from None
    return data


def _no_time(text: str) -> str:
    return f"--not-after {text!r}: a time such as 2027-06-30T00:00:00Z, or +180d"


def _measurements_in(path: Path) -> list[tuple[str, Measurement]]:
    data = read_bounded(path, MAX_MEASUREMENTS_BYTES)
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        raise FileError(f"{path}: not JSON") from None
    if not isinstance(value, dict) or not value:
        raise FileError(f"{path}: not an object from kinds of evidence to registers")
    found: list[tuple[str, Measurement]] = []
    for kind, given in cast("dict[str, object]", value).items():
        each = cast("list[object]", given) if isinstance(given, list) else [given]
        found += [(kind, _measurement(kind, item, path)) for item in each]
    return found


def _measurement(kind: str, value: object, path: Path) -> Measurement:
    registers: Mapping[str, object] = {}
    if isinstance(value, dict):
        registers = cast("Mapping[str, object]", value)
    texts = {
        name: item.lower() for name, item in registers.items() if isinstance(item, str)
    }
    if not texts or len(texts) != len(registers):
        raise FileError(f"{path}: {kind}: registers are hex texts by name")
    _require_measurement(kind, texts, str(path))
    return texts


def _require_measurement(kind: str, measurement: Measurement, where: str) -> None:
    """Refuse a set of registers that no evidence can be compared with."""
    if kind not in {tee.value for tee in Tee}:
        known = ", ".join(tee.value for tee in Tee)
        raise FileError(f"{where}: no kind of evidence is called {kind!r} ({known})")
    problem = measurement_problem(measurement, Tee(kind))
    if problem is not None:
        raise FileError(f"{where}: {kind}: {problem}")
