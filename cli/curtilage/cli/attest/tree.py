"""Renders a verdict as a tree of who vouches for what.

Pure. The verifier supplies the texts; this module formats them. Each line fits 80
columns, even with long certificate names.
"""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from curtilage.attest.claims import Claim, Link
from curtilage.attest.verified_key import VerifiedKey
from curtilage.policy.breaks import Break, known_breaks
from curtilage.policy.explain.breaks import break_in_words

WIDTH: Final = 80
_DATE_WIDTH: Final = 16  # 2026-11-21 12:00
_TEES: Final = {
    "sev-snp": "an AMD SEV-SNP virtual machine, whose memory the processor encrypts",
    "tdx": "an Intel TDX trust domain, whose memory the processor encrypts",
    "nitro": "an AWS Nitro enclave, which AWS's hypervisor isolates",
    "azure-snp": "an Azure confidential virtual machine on AMD SEV-SNP",
    "azure-tdx": "an Azure confidential virtual machine on Intel TDX",
    "tpm": "a machine with a TPM, which isolates NOTHING",
}
_SHOWS: Final = {
    Claim.HARDWARE: "hardware protects its memory from the machine's operator",
    Claim.GPU: "the GPUs are attested, and bound to this machine",
    Claim.WEIGHTS: "the release names the model's files by digest",
    Claim.NO_WRITE: "an attested sandbox prevents it from writing to a disk",
    Claim.ISOLATION: "each request is answered in a process of its own",
    Claim.CUSTODY: "its machine is on the list of those in custody",
    Claim.EPHEMERALITY: "memory that held a request is overwritten, or ends with it",
}
_LIMITS: Final = (
    "What no evidence shows: that the machine was not opened and its memory probed, "
    "that the published release is trustworthy, or that a GPU's certificate is still "
    "valid today."
)
_NOTHING_RULED_OUT: Final = "everything: this evidence comes without hardware"
_NOTHING_KNOWN: Final = "of the attacks in that list, none"


@dataclass(slots=True)
class _Node:
    link: Link
    under: "list[_Node]" = field(default_factory=list["_Node"])


def verdict_text(key: VerifiedKey, left: Sequence[Break]) -> str:
    """Format a verdict: what is trusted, why, and until when.

    Args:
        key: the verdict.
        left: the known breaks that its evidence does not rule out; they come last.
    """
    # The verdict's links include those of devices, which are drawn separately below.
    # By identity: an equal link may also be one of the processor's.
    theirs = {id(link) for device in key.devices for link in device.links}
    ends = sorted(key.expiries, key=lambda entry: entry[1])
    shown = [words for claim, words in _SHOWS.items() if claim in key.shows]
    # What is not shown is listed, too: a reader does not notice what a text leaves out.
    lacking = [claim.value for claim in _SHOWS if claim not in key.shows]
    claims = "; ".join(shown) or "no claim that a class requires"
    rest = f" Not shown: {', '.join(lacking)}." if lacking else ""
    receipts = "signs receipts" if key.receipt_public_key else "signs no receipts"
    parts = [
        _opening(key),
        _wrapped(
            f"What the evidence shows: {claims}.{rest} It {receipts} for its answers."
        ),
        "Who vouches for what"
        + "ends (UTC)".rjust(WIDTH - len("Who vouches for what")),
        tree_text([link for link in key.links if id(link) not in theirs]),
        *(
            f"GPU {device.index} ({device.kind.value})\n{tree_text(device.links)}"
            for device in key.devices
        ),
        "\n".join(
            [
                "Expiry times; the first one ends the trust (UTC)",
                *(
                    f"  {name.ljust(WIDTH - _DATE_WIDTH - 3)} {_time(time)}"
                    for name, time in ends
                ),
            ]
        ),
        _wrapped(_LIMITS),
        left_text(key, left),
    ]
    return "\n\n".join(parts)


def left_text(key: VerifiedKey, left: Sequence[Break]) -> str:
    """Format what a verdict's evidence does not rule out."""
    # Last, where it is read: what was accepted all the same.
    if key.emulated:
        lines = [_NOTHING_RULED_OUT]
    else:
        lines = [break_in_words(row) for row in left] or [_NOTHING_KNOWN]
    return "\n".join(
        [
            f"What this evidence does not rule out (known on {known_breaks().as_of})",
            *(_wrapped(f"- {line}") for line in lines),
        ]
    )


def tree_text(links: Sequence[Link]) -> str:
    """Draw links as a tree, each issuer above its subjects.

    Names may repeat, as with GPUs: a name refers to the latest link with it.
    """
    roots: list[_Node] = []
    known: dict[str, _Node] = {}
    for link in links:
        node = _Node(link)
        # A self-signed root begins a tree, even if an earlier link has the same name.
        above = None if link.issuer == link.subject else known.get(link.issuer)
        (roots if above is None else above.under).append(node)
        known[link.subject] = node
    return "\n".join(line for root in roots for line in _drawn(root, "", ""))


def _drawn(node: _Node, first: str, rest: str) -> Iterator[str]:
    link = node.link
    ends = "" if link.not_after is None else _time(link.not_after)
    name_width = WIDTH - len(first) - _DATE_WIDTH - 1
    name, *more = textwrap.wrap(link.subject, name_width) or [""]
    yield f"{first}{name.ljust(name_width)} {ends}".rstrip()
    bar = "│ " if node.under else "  "
    role = link.role
    if not first and link.issuer != link.subject:
        role += f", vouched for by {link.issuer}"
    words = [*more, *textwrap.wrap(role, WIDTH - len(rest) - len(bar))]
    yield from (f"{rest}{bar}{line}".rstrip() for line in words)
    for number, under in enumerate(node.under):
        last = number == len(node.under) - 1
        branch, stem = ("└─ ", "   ") if last else ("├─ ", "│  ")
        yield from _drawn(under, rest + branch, rest + stem)


def _opening(key: VerifiedKey) -> str:
    release = f"{key.release_name} {key.release_version}"
    where = _TEES.get(key.tee, f"a machine that is {key.tee}")
    lines = [_wrapped(f"TRUSTED until {_time(key.expires_at)} UTC: {release}.")]
    if key.emulated:
        lines.append(_wrapped(_EMULATED))
    else:
        lines.append(_wrapped(f"It runs in {where}."))
    if key.claims.platform:
        platform, half = key.claims.platform, WIDTH // 2
        shown = platform if len(platform) <= half else f"{platform[:half]}…"
        lines.append(_wrapped(f"Machine: {shown}"))
    lines.append(_wrapped(f"Policy:  {key.expectations_digest}"))
    lines.append(_wrapped(f"Verdict: {key.verdict_id} (as in the audit trail)"))
    return "\n".join(lines)


_EMULATED: Final = (
    "EMULATED: this evidence comes without hardware. It is for development, and only "
    "shows the format; the machine's operator can read everything. The names below "
    "are the emulator's, not a vendor's."
)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_on_hyphens=False, subsequent_indent="  ")


def _time(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M}"
