"""The release of a deployment: what its log, its enclave and its clients name.

Kinds of evidence decide which roots are trusted, which provider of evidence runs, and
whether it is for development.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from curtilage.attest.amd_tcb import Product, Tcb
from curtilage.attest.claims import Measurement
from curtilage.attest.encoding.strict_json import canonical_json, parse_object
from curtilage.attest.errors import RefusedError
from curtilage.attest.evidence import Tee
from curtilage.attest.expectations import SNP_TEES, TDX_TEES
from curtilage.attest.log.manifest import ReleaseManifest
from curtilage.attest.sandbox import DESCRIPTION_FORM, PROMISED, Isolation
from curtilage.cli.deploy.sections import Root
from curtilage.client.errors import UsageError
from curtilage.wire.shaping import PADDED

RELEASE_NAME: Final = "curtilage-enclave"
SOURCE: Final = "curtilage deploy init"
LIFE: Final = timedelta(days=90)
EMULATED: Final = Tee.EMULATED_SEV_SNP
EMULATED_PRODUCT: Final = Product.GENOA
EMULATED_TCB: Final = Tcb(bl=9, tee=0, snp=23, ucode=72)
EMULATED_MEASUREMENT: Final = hashlib.sha384(SOURCE.encode()).hexdigest()
"""An emulated machine reports what the release names; it measures nothing."""
_PROVIDERS: Final[Mapping[Tee, str]] = {
    Tee.SEV_SNP: "tsm",
    Tee.TDX: "tsm",
    Tee.NITRO: "nsm",
    Tee.AZURE_SNP: "azure-vtpm",
    Tee.AZURE_TDX: "azure-vtpm",
    EMULATED: "development",
}


MAX_DESCRIPTION_BYTES: Final = 1024 * 1024
_OF_FORKED: Final = "forked_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """The sandbox that an enclave locks itself into.

    Attributes:
        digest: SHA-256 of its description, hex.
        isolation: what separates requests in it.
    """

    digest: str
    isolation: Isolation


def sandbox_of(data: bytes) -> Sandbox | None:
    """Return the sandbox that ``curtilage-enclave sandbox`` describes; None: no such.

    Args:
        data: what it printed.
    """
    limit = MAX_DESCRIPTION_BYTES
    try:
        fields = parse_object(data, where="sandbox", limit_bytes=limit)
        if fields.text("v", limit=len(DESCRIPTION_FORM)) != DESCRIPTION_FORM:
            return None
        engine = fields.child("processes").child("engine")
    except RefusedError:
        return None
    # The digest is of these bytes: not of a file that an editor has put in order.
    if canonical_json(json.loads(data)) != data:
        return None
    forks = any(name.startswith(_OF_FORKED) for name in engine.names)
    return Sandbox(
        digest=hashlib.sha256(data).hexdigest(),
        isolation=Isolation.PROCESS if forks else Isolation.SHARED,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """The machines that a deployment's enclaves run on.

    Attributes:
        measurements: accepted registers, for each kind of evidence.
        min_tcb: AMD's lowest patch levels, for each product.
    """

    measurements: Mapping[Tee, Sequence[Measurement]]
    min_tcb: Mapping[Product, Tcb] = field(default_factory=dict[Product, Tcb])

    @property
    def kinds(self) -> Sequence[Tee]:
        """The kinds of evidence, sorted by name."""
        return sorted(self.measurements)

    @property
    def emulated(self) -> bool:
        """Whether their evidence proves nothing."""
        return EMULATED in self.measurements

    @property
    def environment(self) -> str:
        """The environment of the enclave, and of policies that accept it."""
        return "development" if self.emulated else "production"

    @property
    def providers(self) -> Sequence[str]:
        """The profiles of ``enclave.yaml``, one for each way to evidence."""
        return sorted({_PROVIDERS[kind] for kind in self.kinds})

    def roots(self, pem: bytes = b"") -> Sequence[Root]:
        """Return the roots at which their evidence may end.

        Args:
            pem: the emulator's own root; vendors' are known.
        """
        kinds, roots = set(self.kinds), list[Root]()
        if self.emulated:
            product = EMULATED_PRODUCT.value
            return [Root(kind="emulated", product=product, pem=pem)]
        if kinds & SNP_TEES:
            roots += [
                Root(kind="amd", product=product.value) for product in self.min_tcb
            ]
        if kinds & TDX_TEES:
            roots.append(Root(kind="intel"))
        if Tee.NITRO in kinds:
            roots.append(Root(kind="aws"))
        return roots


def emulated_machines() -> Machines:
    """Return the machine that the emulator emulates."""
    return Machines(
        measurements={EMULATED: ({"launch": EMULATED_MEASUREMENT},)},
        min_tcb={EMULATED_PRODUCT: EMULATED_TCB},
    )


def machines_of(
    measurements: Mapping[str, Sequence[Measurement]], min_tcb: Mapping[Product, Tcb]
) -> Machines:
    """Return the machines that these measurements are of.

    Raises:
        UsageError: they are of kinds that do not run together, or that no operator
            should name; or AMD's patch levels are missing, or there for nothing.
    """
    kinds = {Tee(kind) for kind in measurements}
    unfit = sorted(kinds - set(_PROVIDERS) | kinds & {EMULATED})
    if unfit:
        raise UsageError(
            f"--measurements: {', '.join(unfit)} proves no isolation; --emulated is "
            "for trying"
        )
    if not kinds:
        raise UsageError("--measurements: the files name no machine")
    amd = bool(kinds & SNP_TEES)
    if amd and not min_tcb:
        raise UsageError(
            "AMD's machines need --min-tcb: the lowest patch levels that clients "
            "accept, such as Genoa:bl=10,tee=0,snp=27,ucode=86"
        )
    if min_tcb and not amd:
        raise UsageError("--min-tcb is for AMD's machines, and none is measured")
    return Machines(
        measurements={Tee(kind): tuple(each) for kind, each in measurements.items()},
        min_tcb=dict(min_tcb),
    )


def manifest_of(
    machines: Machines,
    *,
    version: str,
    model: str,
    sandbox: Sandbox | None = None,
    now: datetime,
) -> ReleaseManifest:
    """Return the manifest of a release for these machines.

    Args:
        machines: see there.
        version: of the release.
        model: SHA-256 of its model, hex.
        sandbox: that it names; None: it names none.
        now: when it is published; it expires after ``LIFE``.
    """
    return ReleaseManifest(
        name=RELEASE_NAME,
        version=version,
        source=SOURCE,
        measurements={
            kind.value: tuple(each) for kind, each in machines.measurements.items()
        },
        models=(model,),
        min_tcb={} if machines.emulated else dict(machines.min_tcb),
        sandbox="" if sandbox is None else sandbox.digest,
        isolation=None if sandbox is None else sandbox.isolation,
        ephemerality=None if sandbox is None else PROMISED[sandbox.isolation],
        not_after=int((now + LIFE).timestamp()),
        transport=PADDED,
    )
