"""A key that a verdict vouches for: what ``verify`` returns and the seal door takes.

Apart from the verifiers, so that what seals can be read without them.
"""

from dataclasses import InitVar, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final, Never, NoReturn

from typing_extensions import override

from curtilage.attest.errors import RefusalCode, RefusedError, Step
from curtilage.wire.shaping import TransportParameters

if TYPE_CHECKING:  # what a key shows is carried along here, and read by others
    from collections.abc import Mapping

    from curtilage.attest.amd_tcb import Product, Tcb
    from curtilage.attest.claims import Claim, CpuClaims, DeviceClaims, Link
    from curtilage.attest.log.manifest import Residency
    from curtilage.attest.sandbox import SandboxStatement

VERIFY_DOOR: Final = object()
"""Shows that ``attest.verify`` builds. Only it names this; a test looks. It guards
against mistakes of ours, not against code that means harm in our own process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedKey:
    """Key configurations that hardware, release and policy vouch for.

    Only ``attest.verify`` builds one. Check ``usable_at`` again just before sealing.

    Attributes:
        door: shows who builds it; not kept.
        key_configs: the exact RFC 9458 list that the evidence signs.
        key_configs_digest: SHA-256 of it, hex; the same for every client.
        not_before: start of the key's window.
        expires_at: when the first thing that this rests on runs out.
        tee: the kind of evidence.
        emulated: no hardware backs the evidence.
        release_name: the release's name.
        release_version: the release's version.
        release_digest: SHA-256 of the release's manifest.
        model_digests: SHA-256 of each model that the release lists.
        measurement: the first register that the hardware measured (SEV-SNP:
            the launch measurement), lower-case hex; all are in ``claims``.
        residency: where the release runs, and by whom, as its manifest states.
        transport: how answers are shaped.
        expectations_digest: the policy that this was verified under.
        claims: what the CPU's evidence says.
        min_tcb: the release's own lowest patch levels; challenges are held
            against them too.
        devices: what the devices' evidence says, in the bundle's order.
        shows: what a data class may demand and this key can show.
        not_after: end of the key's window.
        anchor_time: the evidence was made no earlier than this.
        anchor_vouched: when a quorum last saw the anchor's tree head, and no
            later than this was verified, however far a witness's clock runs ahead.
        b0: the binding's base hash, 64 bytes; challenges are answered over it.
        receipt_public_key: Ed25519, 32 bytes, or empty: no receipts.
        sandbox: what the enclave states of its sandbox; None: nothing.
        links: who vouches for what, root first.
        expiries: what this rests on and when each of it runs out.
        steps: what was checked, in order.
        verdict_id: this verdict's name, 64 hex digits; the same verdict,
            reached twice, has the same name, and no other has it.
    """

    key_configs: bytes
    key_configs_digest: str
    not_before: datetime
    expires_at: datetime
    tee: str
    emulated: bool
    release_name: str
    release_version: str
    release_digest: bytes
    model_digests: frozenset[bytes]
    measurement: str
    residency: "Residency"
    transport: TransportParameters
    expectations_digest: str
    claims: "CpuClaims" = field(repr=False, hash=False)
    min_tcb: "Mapping[Product, Tcb]" = field(repr=False, hash=False)
    devices: "tuple[DeviceClaims, ...]" = field(repr=False, hash=False)
    shows: "frozenset[Claim]"
    not_after: datetime
    anchor_time: datetime
    anchor_vouched: datetime
    b0: bytes = field(repr=False)
    receipt_public_key: bytes = field(repr=False)
    sandbox: "SandboxStatement | None" = field(repr=False)
    links: "tuple[Link, ...]" = field(repr=False)
    expiries: tuple[tuple[str, datetime], ...]
    steps: tuple[Step, ...] = field(repr=False)
    verdict_id: str
    door: InitVar[object]
    _brand: object = field(init=False, repr=False, compare=False)

    def __post_init__(self, door: object) -> None:
        """Refuse to exist unless ``verify`` made this."""
        # An ``InitVar`` and a second field: what was passed is not what is kept, so a
        # ``dataclasses.replace`` has nothing that it could pass on.
        if door is not VERIFY_DOOR:
            raise TypeError("only verify() builds a VerifiedKey")
        object.__setattr__(self, "_brand", VERIFY_DOOR)

    @property
    def release(self) -> str:
        """Name and version of the software in the enclave."""
        return f"{self.release_name}/{self.release_version}"

    @override
    def __init_subclass__(cls) -> None:
        """Refuse subclasses, which could answer in this one's place."""
        raise TypeError("VerifiedKey has no subclasses")

    def __copy__(self) -> Never:
        """Refuse to be copied."""
        raise TypeError("a VerifiedKey is not copied")

    def __deepcopy__(self, memo: object) -> Never:
        """Refuse to be copied."""
        raise TypeError("a VerifiedKey is not copied")

    @override
    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be pickled."""
        raise TypeError("a VerifiedKey is not pickled")

    @property
    def isolates(self) -> bool:
        """Whether the evidence shows that memory is kept from the host."""
        return self.claims.tee.isolates

    def usable_at(self, now: datetime) -> None:
        """Refuse once anything that this rests on has run out.

        Raises:
            RefusedError: ``stale``.
        """
        # Asked again by the seal door: between verification and sealing, a client
        # sleeps, retries or waits for its model, and a list may run out meanwhile.
        if now >= self.expires_at:
            raise RefusedError(RefusalCode.STALE, "the verified key has expired")


def require_verified(value: object) -> VerifiedKey:
    """Return ``value`` if ``verify`` built it; the seal door asks this.

    Raises:
        TypeError: it is anything else, an unfinished ``VerifiedKey`` included.
    """
    # ``type`` and not ``isinstance``: a class may lie about itself in ``__class__``.
    # What ``__new__`` alone made has the right type and no brand.
    branded = getattr(value, "_brand", None) is VERIFY_DOOR
    if type(value) is not VerifiedKey or not branded:
        raise TypeError("only a VerifiedKey that verify() built may be sealed to")
    return value
