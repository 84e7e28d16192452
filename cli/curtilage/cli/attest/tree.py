"""Who vouches for what, drawn as a tree for people who must sign for it.

Pure. The words come from those who verified; here they are laid out. Each line
fits 80 columns, whatever a certificate is called.
"""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from curtilage.attest.claims import Claim, Link
from curtilage.attest.verified_key import VerifiedKey

WIDTH: Final = 80
_DATE_WIDTH: Final = 16  # 2026-11-21 12:00
_TEES: Final = {
    "sev-snp": "an AMD SEV-SNP virtual machine, whose memory the processor encrypts",
    "tdx": "an Intel TDX trust domain, whose memory the processor encrypts",
    "nitro": "an AWS Nitro enclave, which AWS's hypervisor keeps apart",
    "azure-snp": "an Azure confidential virtual machine on AMD SEV-SNP",
    "azure-tdx": "an Azure confidential virtual machine on Intel TDX",
    "tpm": "a machine with a TPM, which isolates NOTHING",
}
_SHOWS: Final = {
    Claim.HARDWARE: "hardware keeps its memory from whoever runs the machine",
    Claim.GPU: "the GPUs are attested, and bound to this machine",
    Claim.WEIGHTS: "the release names the model's files by digest",
    Claim.NO_WRITE: "an attested sandbox lets it write nothing to a disk",
}
_LIMITS: Final = (
    "What no evidence shows: that nobody opened the machine and probed its memory, "
    "that the published release is a good one, or that a GPU's certificate is still "
    "in order today."
)


@dataclass(slots=True)
class _Node:
    link: Link
    under: "list[_Node]" = field(default_factory=list["_Node"])


def verdict_text(key: VerifiedKey) -> str:
    """Lay out a verdict: what was believed, why, and until when."""
    # The verdict's links hold those of devices, which are drawn apart, below.
    theirs = {id(link) for device in key.devices for link in device.links}
    ends = sorted(key.expiries, key=lambda entry: entry[1])
    parts = [
        _opening(key),
        _wrapped(_shown(key)),
        "Who vouches for what"
        + "ends (UTC)".rjust(WIDTH - len("Who vouches for what")),
        tree_text([link for link in key.links if id(link) not in theirs]),
        *(
            f"GPU {device.index} ({device.kind.value})\n{tree_text(device.links)}"
            for device in key.devices
        ),
        "\n".join(
            [
                "What ends when; the first ends it all (UTC)",
                *(
                    f"  {name.ljust(WIDTH - _DATE_WIDTH - 3)} {_time(time)}"
                    for name, time in ends
                ),
            ]
        ),
        _wrapped(_LIMITS),
    ]
    return "\n\n".join(parts)


def tree_text(links: Sequence[Link]) -> str:
    """Draw links as a tree: who vouches stands above who is vouched for.

    Names may repeat, as GPUs' do: the last one of a name is meant.
    """
    roots: list[_Node] = []
    known: dict[str, _Node] = {}
    for link in links:
        node = _Node(link)
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
    lines = [_wrapped(f"BELIEVED until {_time(key.expires_at)} UTC: {release}.")]
    if key.emulated:
        lines.append(_wrapped(_EMULATED))
    else:
        lines.append(_wrapped(f"It runs in {where}."))
    if key.claims.platform:
        platform, half = key.claims.platform, WIDTH // 2
        told = platform if len(platform) <= half else f"{platform[:half]}…"
        lines.append(_wrapped(f"Machine: {told}"))
    lines.append(_wrapped(f"Policy:  {key.expectations_digest}"))
    lines.append(_wrapped(f"Verdict: {key.verdict_id} (as in the audit trail)"))
    return "\n".join(lines)


_EMULATED: Final = (
    "EMULATED: no hardware stands behind this. It is for development, and shows how "
    "it would look; nothing keeps whoever runs the machine from reading along. The "
    "names below are the emulator's, whatever vendor they sound like."
)


def _shown(key: VerifiedKey) -> str:
    shown = [words for claim, words in _SHOWS.items() if claim in key.shows]
    lacking = [claim.value for claim in _SHOWS if claim not in key.shows]
    text = f"What the evidence shows: {'; '.join(shown) or 'none of what classes ask'}."
    if lacking:
        text += f" Not shown: {', '.join(lacking)}."
    receipts = (
        "signs a receipt for" if key.receipt_public_key else "gives no receipts of"
    )
    return f"{text} It {receipts} its answers."


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_on_hyphens=False, subsequent_indent="  ")


def _time(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M}"
