"""``curtilage release manifest``: write a release's manifest, a leaf of its log."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path

from curtilage.attest.log.manifest import GpuRelease, ReleaseManifest, Residency
from curtilage.attest.sandbox import Ephemerality, Isolation
from curtilage.cli.declared import Arguments
from curtilage.cli.options import write_or_print
from curtilage.cli.release.options import Progress
from curtilage.cli.terminal import err, unix_text
from curtilage.client.errors import UsageError
from curtilage.transparency.publisher import (
    digest_of,
    encoded,
    image_of,
    measurements_of,
    min_tcb_of,
    moment_of,
)
from curtilage.wire.errors import MalformedError
from curtilage.wire.shaping import PADDED, UNPADDED, TransportParameters


def run_manifest(arguments: Arguments) -> int:
    """Write a manifest; exit 2 if an option is invalid."""
    data = encoded(manifest_from(arguments, datetime.now(UTC)))
    # To standard error: standard output is the manifest, byte for byte.
    err(f"release digest sha256:{hashlib.sha256(data).hexdigest()}")
    return write_or_print(arguments.out, data)


def manifest_from(arguments: Arguments, now: datetime) -> ReleaseManifest:
    """Return the manifest from the options.

    Raises:
        UsageError: an option is invalid.
        ConfigError: a file cannot be read, or is invalid.
    """
    # An enclave states all three, and each must be what its release says.
    modes = (arguments.sandbox, arguments.isolation, arguments.ephemerality)
    if any(modes) and not all(modes):
        raise UsageError("--sandbox, --isolation and --ephemerality need each other")
    progress = Progress().hashed
    not_after = moment_of(arguments.not_after, now)
    manifest = ReleaseManifest(
        name=arguments.name,
        version=arguments.version,
        source=arguments.source,
        images=tuple(image_of(text, progress) for text in arguments.image),
        models=tuple(digest_of(text, progress) for text in arguments.model),
        measurements=measurements_of(Path(each) for each in arguments.measurements),
        min_tcb=dict(min_tcb_of(text) for text in arguments.min_tcb),
        gpu=GpuRelease(
            drivers=tuple(arguments.gpu_driver),
            vbioses=tuple(arguments.gpu_vbios),
            golden=tuple(arguments.gpu_golden),
        ),
        sandbox=digest_of(arguments.sandbox) if arguments.sandbox else "",
        isolation=Isolation(arguments.isolation) if arguments.isolation else None,
        ephemerality=(
            Ephemerality(arguments.ephemerality) if arguments.ephemerality else None
        ),
        not_after=not_after,
        transport=_transport(arguments),
        residency=Residency(
            operator=arguments.operator or "",
            country=arguments.country or "",
            region=arguments.region or "",
        ),
    )
    err(f"expires {unix_text(not_after)}")
    return manifest


def _transport(arguments: Arguments) -> TransportParameters:
    names = ("frame_bytes", "period_ms", "first_bucket", "buckets")
    given = {name: getattr(arguments, name) for name in names}
    if arguments.unsafe_unpadded:
        # Without frames these values have no effect, and a publisher would believe that
        # answers are padded.
        if any(value is not None for value in given.values()):
            raise UsageError("--unsafe-unpadded excludes the options for frames")
        return UNPADDED
    chosen = {
        # Padded unless the publisher says otherwise: the length of an answer reveals
        # what it is about.
        name: getattr(PADDED, name) if value is None else value
        for name, value in given.items()
    }
    try:
        return TransportParameters(**chosen)
    except MalformedError as error:
        raise UsageError(str(error)) from None
