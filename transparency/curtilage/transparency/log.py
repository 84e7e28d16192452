"""A transparency log in a folder that any static web server can serve.

::

    DIR/checkpoint              the signed tree head; replaced last
    DIR/tile/0/000.p/5 …        hashes (C2SP tlog-tiles)
    DIR/tile/entries/000.p/5 …  the leaves, each after its length

The private key is outside of it, where it is not served. Next to the key is the last
signed head (``KEY.head``), so that a folder that was rolled back or modified is not
written to. The order of a change is: tiles, then ``KEY.head``, then the checkpoint; the
next writer completes what a crash left unfinished.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.log.note import (
    Checkpoint,
    NoteKey,
    TrustedLog,
    cosignature_time,
    parse_checkpoint,
    verify_checkpoint,
)
from curtilage.attest.log.signers import LogSigner
from curtilage.attest.log.tiles import (
    CHECKPOINT_PATH,
    MAX_ENTRY_BYTES,
    TILE_WIDTH,
    Tile,
    bundles_between,
    encode_bundle,
    encode_tile,
    parse_bundle,
    parse_tile,
    tile_root,
    tiles_between,
    tiles_of,
)
from curtilage.attest.log.tree import EMPTY_ROOT, HASH_BYTES, Tree, hash_leaf
from curtilage.attest.log.vkeys import is_key_name
from curtilage.transparency.errors import FileError
from curtilage.transparency.files import (
    PRIVATE_FILE,
    create_file,
    locked,
    make_folder,
    read_bounded,
    read_key,
    read_text,
    replace_file,
    require_outside,
    write_key,
)

HEAD_SUFFIX: Final = ".head"
MAX_CHECKPOINT_BYTES: Final = 512 * 1024
_MAX_BUNDLE_BYTES: Final = TILE_WIDTH * (MAX_ENTRY_BYTES + 2)
_MAX_TILE_BYTES: Final = TILE_WIDTH * HASH_BYTES

Progress = Callable[[int, int], None]
"""Called with the number of leaves checked, and their total."""


def no_progress(done: int, total: int) -> None:
    """Report nothing."""
    del done, total


class LogFolder:
    """A log's folder, for reading; nothing in it is trusted unverified.

    Args:
        path: the folder, your own or a copy of someone else's.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def checkpoint_path(self) -> Path:
        """Path of the signed tree head."""
        return self.path / CHECKPOINT_PATH

    def checkpoint(self) -> str:
        """Read the checkpoint's text.

        Raises:
            FileError: there is none.
        """
        return read_text(self.checkpoint_path, MAX_CHECKPOINT_BYTES)

    def bundles(self, size: int) -> Iterator[tuple[int, tuple[bytes, ...]]]:
        """Yield the leaves of a tree, one bundle at a time, with its first number.

        Raises:
            FileError: a file is missing.
            RefusedError: a file is not a bundle of its width.
        """
        for tile in bundles_between(0, size):
            entries = self._of_tile(tile, _MAX_BUNDLE_BYTES, parse_bundle)
            yield tile.index * TILE_WIDTH, entries

    def entry(self, index: int, size: int) -> bytes:
        """Read one leaf; ``index`` is below ``size``."""
        number = index // TILE_WIDTH
        width = min(size - number * TILE_WIDTH, TILE_WIDTH)
        tile = Tile(level=None, index=number, width=width)
        entries = self._of_tile(tile, _MAX_BUNDLE_BYTES, parse_bundle)
        return entries[index % TILE_WIDTH]

    def leaf_hashes(self, size: int) -> list[bytes]:
        """Read the leaf hashes, without comparing them with the leaves."""
        hashes: list[bytes] = []
        for tile in tiles_of(size):
            if tile.level == 0:
                hashes += self._of_tile(tile, _MAX_TILE_BYTES, parse_tile)
        return hashes

    def tree(self, head: Checkpoint, progress: Progress = no_progress) -> Tree:
        """Return the tree after comparing every leaf and tile with a tree head.

        Raises:
            RefusedError: ``proof_invalid``: the files do not match the checkpoint;
                ``malformed``: a file is not a tile.
            FileError: a file is missing.
        """
        hashes = self.leaf_hashes(head.size)
        for start, entries in self.bundles(head.size):
            for index, entry in enumerate(entries, start):
                if hash_leaf(entry) != hashes[index]:
                    raise _changed(f"leaf {index} is not the one that was logged")
            progress(start + len(entries), head.size)
        tree = Tree(hashes)
        if tree.root() != head.root:
            raise _changed("the tiles do not lead to the checkpoint's root")
        # The root follows from the leaves alone. But a client that requests a proof
        # also reads the higher tiles, and a wrong one would mislead it.
        for tile, data in hash_tiles(hashes, 0):
            if tile.level and data != encode_tile(
                self._of_tile(tile, _MAX_TILE_BYTES, parse_tile)
            ):
                raise _changed(f"{tile.path} is not what is below it")
        return tree

    def _of_tile(
        self,
        tile: Tile,
        limit: int,
        parse: Callable[[bytes, Tile], tuple[bytes, ...]],
    ) -> tuple[bytes, ...]:
        """Read a tile; if a partial one is missing, the full one contains it."""
        path = self.path / tile.path
        if tile.width == TILE_WIDTH or path.exists():
            return parse(read_bounded(path, limit), tile)
        whole = self.path / tile.whole.path
        if not whole.exists():
            raise FileError(f"{path}: no such file")
        return parse(read_bounded(whole, limit), tile.whole)[: tile.width]


def hash_tiles(hashes: Sequence[bytes], written: int) -> Iterator[tuple[Tile, bytes]]:
    """Yield the tiles that a tree has and its first ``written`` leaves did not have.

    Args:
        hashes: of all leaves.
        written: the number of leaves whose tiles exist.
    """
    levels = [list(hashes)]
    for tile in tiles_between(written, len(hashes)):
        level = tile.level or 0
        while level >= len(levels):
            below = levels[-1]
            # Only a full tile has a hash in the level above it (tlog-tiles).
            whole = len(below) - len(below) % TILE_WIDTH
            levels.append(
                [
                    tile_root(below[start : start + TILE_WIDTH])
                    for start in range(0, whole, TILE_WIDTH)
                ]
            )
        start = tile.index * TILE_WIDTH
        yield tile, encode_tile(levels[level][start : start + tile.width])


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """The result of adding leaves.

    Attributes:
        indices: the number of each leaf, in the order given.
        size: number of leaves now.
        checkpoint: the new checkpoint's text, not yet cosigned.
        fresh: how many of them were not in the log before.
    """

    indices: tuple[int, ...]
    size: int
    checkpoint: str
    fresh: int


def create_log(path: Path, origin: str, key_path: Path) -> LogSigner:
    """Create an empty log, and its key if there is none.

    Raises:
        FileError: a log already exists, the origin cannot be one, or the key
            would be served.
    """
    if not is_key_name(origin):
        raise FileError(f"{origin!r}: an origin has no spaces and no plus sign")
    require_outside(key_path, path)
    make_folder(path)
    folder = LogFolder(path)
    if folder.checkpoint_path.exists() or (path / "tile").exists():
        raise FileError(f"{path}: a log already exists")
    if not key_path.exists():
        write_key(key_path, Ed25519PrivateKey.generate())
    signer = read_signer(origin, key_path)
    checkpoint = signer.checkpoint(0, EMPTY_ROOT).encode()
    with locked(key_path, path):
        head = _head_path(key_path)
        if head.exists():
            raise FileError(f"{head}: already exists: this key keeps another log")
        # The head comes last: if this is interrupted before, there is a log to --adopt.
        replace_file(folder.checkpoint_path, checkpoint)
        create_file(head, checkpoint, PRIVATE_FILE)
    return signer


class LogWriter:
    """A log that is locked for writing; see ``open_log``."""

    def __init__(self, folder: LogFolder, signer: LogSigner, key_path: Path) -> None:
        self._folder = folder
        self._signer = signer
        self._head_path = _head_path(key_path)
        self._hashes: list[bytes] = []

    @property
    def signer(self) -> LogSigner:
        """The log's signer."""
        return self._signer

    @property
    def size(self) -> int:
        """Number of leaves now."""
        return len(self._hashes)

    def load(self, progress: Progress, *, adopt: bool) -> None:
        """Compare the folder with its checkpoint, and with the last signed head."""
        head = signed = self._verified(self._folder.checkpoint())
        if self._head_path.exists():
            signed = self._verified(read_text(self._head_path, MAX_CHECKPOINT_BYTES))
        elif not adopt:
            raise FileError(
                f"{self._head_path}: missing; it says what this key signed last. "
                "--adopt recreates it, if you are sure that this is the newest state"
            )
        if signed.size > head.size:
            # A crash between the two files, or a folder that was rolled back. In the
            # first case all tiles exist, and the signed head is published now.
            try:
                self._folder.tree(signed)
            except (RefusedError, FileError):
                raise _changed(
                    f"the folder was rolled back: {signed.size} leaves were signed"
                ) from None
            text = read_text(self._head_path, MAX_CHECKPOINT_BYTES)
            replace_file(self._folder.checkpoint_path, text.encode())
            head = signed
        tree = self._folder.tree(head, progress)
        # Signing from here would put this key's signature under two histories, which is
        # the fork that witnesses detect.
        same = (signed.size, signed.root) == (head.size, head.root)
        if not same and not (adopt and tree.root(signed.size) == signed.root):
            raise _changed("the key signed this checkpoint somewhere else")
        self._hashes = [*tree.leaf_hashes]
        if adopt:
            text = self._folder.checkpoint()
            replace_file(self._head_path, text.encode(), PRIVATE_FILE)

    def add(self, entries: Sequence[bytes]) -> Added:
        """Log leaves; those that are in the log already keep their number.

        Raises:
            RefusedError: ``too_large``: one is longer than 65,535 bytes.
            FileError: a file cannot be written.
        """
        known = {leaf: index for index, leaf in reversed([*enumerate(self._hashes)])}
        fresh: dict[bytes, bytes] = {}
        for entry in entries:
            if hash_leaf(entry) not in known:
                fresh.setdefault(hash_leaf(entry), entry)
        before = len(self._hashes)
        if fresh:
            self._write(before, list(fresh.values()))
        known |= {leaf: before + number for number, leaf in enumerate(fresh)}
        return Added(
            indices=tuple(known[hash_leaf(entry)] for entry in entries),
            size=len(self._hashes),
            checkpoint=self._folder.checkpoint(),
            fresh=len(fresh),
        )

    def _write(self, before: int, entries: Sequence[bytes]) -> None:
        hashes = [*self._hashes, *(hash_leaf(entry) for entry in entries)]
        # The last bundle was partial: its leaves are in the one that replaces it.
        start = before - before % TILE_WIDTH
        kept = [self._folder.entry(index, before) for index in range(start, before)]
        every = [*kept, *entries]
        for tile in bundles_between(before, len(hashes)):
            first = tile.index * TILE_WIDTH - start
            self._write_tile(tile, encode_bundle(every[first : first + tile.width]))
        for tile, data in hash_tiles(hashes, before):
            self._write_tile(tile, data)
        signed = self._signer.checkpoint(len(hashes), Tree(hashes).root()).encode()
        # In this order. The head before the checkpoint: if the published state were
        # ahead of the remembered one, a rollback to before it would pass. The tiles
        # before both, so that a reader of a checkpoint finds everything that it covers.
        replace_file(self._head_path, signed, PRIVATE_FILE)
        replace_file(self._folder.checkpoint_path, signed)
        self._hashes = hashes
        # Partial tiles whose full tile now exists are removed last: the old checkpoint
        # needed them until the new one replaced it.
        for tile in (
            *tiles_between(before, len(hashes)),
            *bundles_between(before, len(hashes)),
        ):
            path = self._folder.path / tile.path
            partial = path.with_name(path.name + ".p")
            if tile.width == TILE_WIDTH and partial.is_dir():
                rmtree(partial, ignore_errors=True)

    def _write_tile(self, tile: Tile, data: bytes) -> None:
        path = self._folder.path / tile.path
        make_folder(path.parent)
        replace_file(path, data)

    def _verified(self, text: str) -> Checkpoint:
        trusted = TrustedLog(
            origin=self._signer.name, key=self._signer.public, witnesses=()
        )
        return verify_checkpoint(text, trusted)


@contextmanager
def open_log(
    path: Path, key_path: Path, *, progress: Progress = no_progress, adopt: bool = False
) -> Generator[LogWriter]:
    """Lock a log for writing.

    Args:
        path: the folder.
        key_path: the log's private key.
        progress: called while the leaves are compared.
        adopt: trust the folder if ``KEY.head`` is missing, or is an earlier head of
            the same log; the folder must still be complete.

    Raises:
        HeldError: another process writes.
        RefusedError: the folder does not match its checkpoint, is older than the
            last head that this key signed, or belongs to another key.
        FileError: a file is missing.
    """
    require_outside(key_path, path)
    folder = LogFolder(path)
    with locked(key_path, path):
        # Nothing but the log's name is taken from it; ``load`` verifies it.
        _, head = parse_checkpoint(folder.checkpoint())
        signer = read_signer(head.origin, key_path)
        writer = LogWriter(folder, signer, key_path)
        writer.load(progress, adopt=adopt)
        yield writer


def add_cosignatures(
    path: Path, log: NoteKey, witnesses: Sequence[NoteKey], lines: str
) -> tuple[str, ...]:
    """Add witnesses' lines to the checkpoint; return all witnesses that cosigned it.

    Args:
        path: the log's folder.
        log: its key.
        witnesses: the known witnesses.
        lines: cosignature lines; those of known witnesses are verified, others are
            skipped.

    Raises:
        RefusedError: a known witness's line is not a cosignature of this
            checkpoint.
    """
    folder = LogFolder(path)
    with locked(path):
        text = folder.checkpoint()
        verify_checkpoint(text, TrustedLog(origin=log.name, key=log, witnesses=()))
        body = text.rpartition("\n\n")[0]
        note, head = parse_checkpoint(f"{body}\n\n{lines}")
        named = [w for w in witnesses if cosignature_time(note, head, w) is not None]
        ids = {(w.name, w.key_id(w.cosignature_type)) for w in named}
        # Replaces an earlier line of the same witness, whose time is older.
        kept = _lines_of(text, lambda signer: signer not in ids)
        fresh = _lines_of(f"{body}\n\n{lines}", lambda signer: signer in ids)
        replace_file(folder.checkpoint_path, f"{body}\n\n{kept}{fresh}".encode())
    return tuple(witness.name for witness in named)


def _lines_of(text: str, wanted: Callable[[tuple[str, bytes]], bool]) -> str:
    """Return the signature lines of certain signers unchanged."""
    note, _ = parse_checkpoint(text)
    lines = text.rpartition("\n\n")[2][:-1].split("\n")
    return "".join(
        f"{line}\n"
        for line, signature in zip(lines, note.signatures, strict=True)
        if wanted((signature.name, signature.key_id))
    )


def read_signer(origin: str, key_path: Path) -> LogSigner:
    """Read a log's private key.

    Raises:
        FileError: it cannot be read, is open to others, or is not Ed25519.
    """
    key = read_key(key_path)
    if not isinstance(key, Ed25519PrivateKey):
        raise FileError(f"{key_path}: a log signs with Ed25519")
    return LogSigner(name=origin, key=key)


def _head_path(key_path: Path) -> Path:
    return key_path.with_name(key_path.name + HEAD_SUFFIX)


def _changed(detail: str) -> RefusedError:
    return RefusedError(RefusalCode.PROOF_INVALID, detail)
