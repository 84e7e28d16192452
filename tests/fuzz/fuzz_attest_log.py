"""The parsers of transparency logs: notes, proofs, policies, tiles, histories.

Keys are fixed, so that true texts are the same in every process.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fuzz.common import Harness

from curtilage.attest.errors import RefusedError
from curtilage.attest.log.heads import HeadHistory, TreeHead, parse_history
from curtilage.attest.log.note import (
    TrustedLog,
    encode_hashes,
    parse_hashes,
    verify_checkpoint,
    verify_proof,
)
from curtilage.attest.log.signers import LogSigner, WitnessSigner
from curtilage.attest.log.tiles import Tile, encode_bundle, parse_bundle
from curtilage.attest.log.tree import verify_consistency
from curtilage.attest.log.vkeys import parse_verifier_key
from curtilage.attest.log.witness_policy import parse_policy
from curtilage.transparency.witness import WitnessRequest, parse_request
from curtilage_dev.log import DevelopmentLog
from support.tile_paths import parse_path

NOW: Final = datetime(2027, 6, 1, 12, tzinfo=UTC)
INDEX: Final = 3
HASH_BYTES: Final = 32


def _key(number: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)


LOG: Final = DevelopmentLog(
    signer=LogSigner(name="example.org/log", key=_key(1)),
    witnesses=(WitnessSigner(name="w.example", key=_key(2)),),
    leaves=tuple(f"leaf {number}".encode() for number in range(11)),
)
TRUSTED: Final = TrustedLog(
    origin=LOG.signer.name,
    key=LOG.signer.public,
    witnesses=tuple(witness.public for witness in LOG.witnesses),
)


@cache
def policy() -> str:
    """Write a policy with a group."""
    witness = LOG.witnesses[0].verifier_key.text
    return (
        f"# a comment\nlog {LOG.signer.verifier_key.text} https://x.example/\n"
        f"witness W {witness}\ngroup G 1 W\nquorum G\n"
    )


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="surrogateescape")


def _accepted(parse: Callable[[], object]) -> bool:
    try:
        parse()
    except RefusedError:
        return False
    return True


def check_checkpoint(data: bytes) -> None:
    """A text that verifies is what the log signed."""
    try:
        checkpoint = verify_checkpoint(_text(data), TRUSTED)
    except RefusedError:
        return
    assert checkpoint.root == LOG.tree.root(checkpoint.size)
    assert set(checkpoint.cosigned) <= {"w.example"}


def check_log_proof(data: bytes) -> None:
    """A text that verifies proves the only leaf under its own number."""
    try:
        found = verify_proof(_text(data), leaf=LOG.leaves[INDEX], log=TRUSTED)
    except RefusedError:
        return
    assert found.index == INDEX
    assert found.checkpoint.root == LOG.root


def check_log_policy(data: bytes) -> None:
    """A policy that is accepted names no witness twice, and only known ones."""
    try:
        found = parse_policy(data)
    except RefusedError:
        return
    keys = [*found.logs, *found.witnesses.values()]
    assert len({key.public_key for key in keys}) == len(keys)
    assert found.quorum in {b"none", *found.witnesses, *found.groups}


def check_verifier_key(data: bytes) -> None:
    """A key that is accepted has one spelling."""
    text = _text(data)
    if _accepted(lambda: parse_verifier_key(text)):
        assert parse_verifier_key(text).text == text


def check_tile_path(data: bytes) -> None:
    """A path that is accepted has one spelling."""
    text = _text(data)
    if _accepted(lambda: parse_path(text)):
        assert parse_path(text).path == text


def check_entry_bundle(data: bytes) -> None:
    """The first byte is the width less one; accepted entries have one form."""
    tile = Tile(level=None, index=0, width=(data[0] if data else 0) + 1)
    rest = data[1:]
    if _accepted(lambda: parse_bundle(rest, tile)):
        entries = parse_bundle(rest, tile)
        assert len(entries) == tile.width
        assert encode_bundle(entries) == rest


def check_tree_heads(data: bytes) -> None:
    """A history that is accepted can be stored and read again."""
    if _accepted(lambda: parse_history(data)):
        history = parse_history(data)
        assert parse_history(history.encode()) == history


def check_hash_lines(data: bytes) -> None:
    """Lines that are accepted have one spelling."""
    text = _text(data)
    if _accepted(lambda: parse_hashes(text)):
        assert encode_hashes(parse_hashes(text)) == text


def check_consistency(data: bytes) -> None:
    """Two sizes and a proof: only the true proof of a true pair holds."""
    first, second = (data + b"\0\0")[:2]
    first, second = first % 12, second % 12
    rest = data[2:]
    hashes = [rest[at : at + HASH_BYTES] for at in range(0, len(rest), HASH_BYTES)]
    tree = LOG.tree
    roots = tree.root(min(first, 11)), tree.root(min(second, 11))
    if _accepted(lambda: verify_consistency(first, roots[0], second, roots[1], hashes)):
        assert tree.consistency(min(first, 11), min(second, 11)) == tuple(hashes)


def check_witness_request(data: bytes) -> None:
    """A request that is accepted has one spelling."""
    text = _text(data)
    if _accepted(lambda: parse_request(text)):
        assert parse_request(text).encode() == text


def fixed_log_seeds() -> Iterator[tuple[str, str, bytes]]:
    """Yield harness, name and bytes of true texts."""
    checkpoint = LOG.checkpoint(NOW)
    hashes = LOG.consistency(3)
    request = WitnessRequest(old_size=3, hashes=hashes, checkpoint=checkpoint)
    heads = tuple(
        TreeHead(origin=LOG.signer.name, size=size, root=LOG.tree.root(size))
        for size in (3, 11)
    )
    yield "checkpoint", "cosigned", checkpoint.encode()
    yield "checkpoint", "signed", LOG.signer.checkpoint(11, LOG.root).encode()
    yield "log_proof", "whole", LOG.proof(INDEX, NOW).encode()
    yield "log_policy", "group", policy().encode()
    yield "log_policy", "none", b"quorum none\n"
    yield "verifier_key", "log", LOG.signer.verifier_key.text.encode()
    yield "verifier_key", "witness", LOG.witnesses[0].verifier_key.text.encode()
    yield "tile_path", "deep", b"tile/1/x001/x234/067.p/5"
    yield "tile_path", "entries", b"tile/entries/000"
    yield "entry_bundle", "three", b"\2" + encode_bundle([b"a", b"", b"bc"])
    yield "tree_heads", "two", HeadHistory().seen(*heads).encode()
    yield "hash_lines", "two", encode_hashes(hashes[:2]).encode()
    yield "consistency", "three to eleven", b"\3\x0b" + b"".join(hashes)
    yield "consistency", "eight to eleven", b"\x08\x0b" + b"".join(LOG.consistency(8))
    yield "witness_request", "whole", request.encode().encode()


HARNESSES: Final = (
    Harness(name="checkpoint", check=check_checkpoint, max_bytes=2048),
    Harness(name="log_proof", check=check_log_proof, max_bytes=2048),
    Harness(name="log_policy", check=check_log_policy, max_bytes=2048),
    Harness(name="verifier_key", check=check_verifier_key, max_bytes=2048),
    Harness(name="tile_path", check=check_tile_path, max_bytes=64),
    Harness(name="entry_bundle", check=check_entry_bundle, max_bytes=1024),
    Harness(name="tree_heads", check=check_tree_heads, max_bytes=2048),
    Harness(name="hash_lines", check=check_hash_lines, max_bytes=2048),
    Harness(name="consistency", check=check_consistency, max_bytes=512),
    Harness(name="witness_request", check=check_witness_request, max_bytes=2048),
)
