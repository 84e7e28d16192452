"""``curtilage release manifest``: describe a release, as its log's leaf."""

import argparse
import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from curtilage.attest.log.manifest import GpuRelease, ReleaseManifest
from curtilage.cli.attest.verdict_json import unix_text
from curtilage.cli.release.options import Progress, write_or_print
from curtilage.cli.terminal import Commands, add_command, err
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

TEXT: Final = """\
Write the manifest of a release: canonical JSON, so that one release has one leaf.

--measurements is a JSON file from kinds of evidence to registers, as the image's build
prints it: {"sev-snp": [{"launch": "..."}], "azure-snp": [{"launch": "...", "pcr11":
"..."}]}. Give every set that a machine of this release may show: one for each number
of virtual processors, for instance.

Images and models are named by file, whose SHA-256 is computed, or by sha256:HEX.
After --not-after clients refuse the release: choose it with the next one in mind."""
EXAMPLE: Final = """\
curtilage release manifest --name curtilage-enclave --version 1.2.0 \\
  --source git+https://example.com/enclave@4f2a... \\
  --measurements measured.json --image vm=enclave.img --model model.gguf \\
  --min-tcb Genoa:bl=9,tee=0,snp=23,ucode=72 --not-after +180d --out manifest.json"""


def add(commands: "Commands[argparse.ArgumentParser]") -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "manifest",
        summary="describe a release",
        text=TEXT,
        example=EXAMPLE,
    )
    _add_what(parser)
    _add_where(parser)
    _add_transport(parser)
    parser.add_argument(
        "--not-after",
        required=True,
        metavar="TIME",
        help="when it expires: 2027-06-30T00:00:00Z, or +180d from now",
    )
    parser.add_argument("--out", metavar="FILE", help="default: standard output")
    parser.set_defaults(run=run_manifest)


def run_manifest(arguments: argparse.Namespace) -> int:
    """Write a manifest; exit 2 where an option is wrong."""
    data = encoded(manifest_from(arguments, datetime.now(UTC)))
    err(f"release digest sha256:{hashlib.sha256(data).hexdigest()}")
    return write_or_print(arguments.out, data)


def manifest_from(arguments: argparse.Namespace, now: datetime) -> ReleaseManifest:
    """Read the options.

    Raises:
        UsageError: one is spelt wrong.
        ConfigError: a file cannot be read, or is not what it should be.
    """
    told = Progress().hashed
    not_after = moment_of(arguments.not_after, now)
    manifest = ReleaseManifest(
        name=arguments.name,
        version=arguments.version,
        source=arguments.source,
        images=tuple(image_of(text, told) for text in arguments.image),
        models=tuple(digest_of(text, told) for text in arguments.model),
        measurements=measurements_of(Path(each) for each in arguments.measurements),
        min_tcb=dict(min_tcb_of(text) for text in arguments.min_tcb),
        gpu=GpuRelease(
            drivers=tuple(arguments.gpu_driver),
            vbioses=tuple(arguments.gpu_vbios),
            golden=tuple(arguments.gpu_golden),
        ),
        sandbox=digest_of(arguments.sandbox) if arguments.sandbox else "",
        not_after=not_after,
        transport=_transport(arguments),
    )
    if manifest.sandbox:
        err(
            "the enclave server of this version puts itself into no sandbox and does "
            "not start\nunder a manifest that names one"
        )
    err(f"expires {unix_text(not_after)}")
    return manifest


def _add_what(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--name", required=True, help="what policies call it")
    parser.add_argument("--version", required=True, help="new for every release")
    parser.add_argument(
        "--source", required=True, help="repository and commit that it was built from"
    )
    parser.add_argument(
        "--measurements",
        required=True,
        action="append",
        metavar="FILE",
        help="JSON as the image's build prints it; repeatable",
    )
    for name, what in (("image", "a file of the release"), ("model", "a model file")):
        parser.add_argument(
            f"--{name}",
            action="append",
            default=[],
            metavar="[NAME=]FILE" if name == "image" else "FILE",
            help=f"{what}, or sha256:HEX; repeatable",
        )


def _add_where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--min-tcb",
        action="append",
        default=[],
        metavar="LEVELS",
        help="lowest AMD patch levels: Genoa:bl=9,tee=0,snp=23,ucode=72; repeatable",
    )
    for name, what in (
        ("driver", "driver version"),
        ("vbios", "VBIOS version"),
        ("golden", "SHA-256 of the measurement records"),
    ):
        parser.add_argument(
            f"--gpu-{name}",
            action="append",
            default=[],
            metavar="TEXT",
            help=f"a GPU's {what} that will do; repeatable",
        )
    parser.add_argument(
        "--sandbox",
        metavar="SHA256",
        help="digest of the sandbox policy that it runs under, or its file; the "
        "enclave server of this version refuses a manifest that names one",
    )


def _add_transport(parser: argparse.ArgumentParser) -> None:
    for name in ("frame_bytes", "period_ms", "first_bucket", "buckets"):
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=int,
            metavar="N",
            help=f"how answers are shaped (default: {getattr(PADDED, name)})",
        )
    parser.add_argument(
        "--unsafe-unpadded",
        action="store_true",
        help="answers show their length and their pace",
    )


def _transport(arguments: argparse.Namespace) -> TransportParameters:
    names = ("frame_bytes", "period_ms", "first_bucket", "buckets")
    given = {name: getattr(arguments, name) for name in names}
    if arguments.unsafe_unpadded:
        if any(value is not None for value in given.values()):
            raise UsageError("--unsafe-unpadded leaves no frames to describe")
        return UNPADDED
    chosen = {
        name: getattr(PADDED, name) if value is None else value
        for name, value in given.items()
    }
    try:
        return TransportParameters(**chosen)
    except MalformedError as error:
        raise UsageError(str(error)) from None
