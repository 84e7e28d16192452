"""Files that a policy refers to, and the digest over all of them.

The caller reads the files; here each is parsed once.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from curtilage.attest.custody import parse_custody
from curtilage.attest.errors import RefusedError
from curtilage.attest.expectations import CustodyExpectations
from curtilage.attest.log.note import NoteKey
from curtilage.policy.document.attestation import Attestation
from curtilage.policy.document.checks import Complaint, Tree
from curtilage.policy.document.detection_plan import (
    NO_RECOGNIZERS,
    ExclusionList,
    OwnDetector,
    PresidioPlan,
)
from curtilage.policy.document.dictionaries import digests_of, words_of
from curtilage.policy.document.exact_list import ExactList, is_exact_list
from curtilage.policy.document.keys import decode_certificates
from curtilage.policy.document.model import DetectorEntry, Document, Recognizers
from curtilage.policy.document.recognizers import recognizers_of, require_classes
from curtilage.policy.document.routing import Routing
from curtilage.policy.errors import PolicyError

Files: TypeAlias = Callable[[str], bytes]
"""Returns the contents of a file that a policy names; raises OSError."""

NO_FILES: Final = "no file can be read here"


def digest_of(
    text: str, *, packs: Mapping[str, str], files: Mapping[str, bytes]
) -> str:
    """Return the digest of a policy: of its text, and of everything that it names.

    Where it names nothing, SHA-256 of the text's bytes. Otherwise SHA-256 of
    these lines, each ended by a line feed: ``curtilage-policy-digest 1``,
    ``policy <digest>``, ``pack <name> <digest>`` in the policy's order, ``file
    <name> <digest>`` by name; a digest is SHA-256 of the bytes in hexadecimal.
    No policy reads like these lines, so the two kinds cannot be confused.
    """
    # Packs in the policy's order, since it is the order of their rules; files by name,
    # since the order in which they were read has no meaning.
    lines = [f"pack {name} {_sha256(packs[name].encode())}" for name in packs]
    lines += [f"file {name} {_sha256(files[name])}" for name in sorted(files)]
    digest = _sha256(text.encode())
    if lines:
        whole = ["curtilage-policy-digest 1", f"policy {digest}", *lines, ""]
        digest = _sha256("\n".join(whole).encode())
    return "sha256:" + digest


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass(slots=True)
class Attachments:
    """The files that a policy names, read once each, and their parsed contents."""

    files: Files | None
    yaml: Callable[[str], Tree]
    contents: dict[str, bytes] = field(default_factory=dict[str, bytes])
    detectors: list[OwnDetector] = field(default_factory=list[OwnDetector])
    lists: list[ExclusionList] = field(default_factory=list[ExclusionList])
    presidio: PresidioPlan = NO_RECOGNIZERS
    custody: CustodyExpectations | None = None

    def read(self, document: Document) -> list[Complaint]:
        """Read them all; return what is wrong with them."""
        found: list[Complaint] = []
        for index, entry in enumerate(document.detectors.own):
            try:
                self.detectors.append(self._detector(entry))
            except ValueError as error:
                found.append((("detectors", "own", index, "file"), str(error)))
        try:
            self._read_recognizers(document.detectors.presidio)
        except ValueError as error:
            found.append((("detectors", "presidio", "file"), str(error)))
        found += self._routing(document.routing) if document.routing else ()
        found += self._custody(document.attestation)
        own = frozenset(each.data_class for each in document.detectors.own)
        own |= {data_class for _, data_class in self.presidio.classes}
        for index, each in enumerate(document.exclude):
            if not each.dictionary:
                continue
            try:
                classes = tuple(sorted(each.classes(own)))
                entries = words_of(self._content(each.dictionary))
            except ValueError as error:
                found.append((("exclude", index, "dictionary"), str(error)))
                continue
            self.lists.append(
                ExclusionList(name=each.dictionary, classes=classes, entries=entries)
            )
        return found

    def _detector(self, entry: DetectorEntry) -> OwnDetector:
        content = self._content(entry.file) if entry.file else None
        if content is None:
            return entry.compile(())
        if entry.kind != "edm":
            return entry.compile(words_of(content))
        if not is_exact_list(content):
            return entry.compile(digests_of(content))
        ExactList.parse(content, salt=bytes.fromhex(entry.salt or ""))
        return entry.compile((), content)

    def _read_recognizers(self, section: Recognizers | None) -> None:
        if section is None:
            return
        recognizers: tuple[str, ...] = ()
        if section.file is not None:
            try:
                text = self._content(section.file).decode("utf-8-sig")
                recognizers = recognizers_of(self.yaml(text))
            except UnicodeDecodeError:
                raise ValueError("the file is not UTF-8") from None
            except PolicyError as error:
                raise ValueError(f"of the file, {error.problems[0]}") from None
        more = bool(section.entry_points)
        require_classes(recognizers, section.classes, more=more)
        self.presidio = PresidioPlan(
            recognizers=recognizers,
            entry_points=tuple(
                (each.name, each.distribution, each.version)
                for each in section.entry_points
            ),
            classes=tuple(sorted(section.classes.items())),
        )

    def _custody(self, section: Attestation | None) -> Iterator[Complaint]:
        named = None if section is None else section.custody
        if named is None:
            return
        try:
            text = self._content(named.file).decode("utf-8")
            key = NoteKey(name=named.name, public_key=named.key)
            self.custody = parse_custody(text, key)
        except UnicodeDecodeError:
            yield ("attestation", "custody", "file"), "the file is not UTF-8"
        except RefusedError as error:
            place = ("attestation", "custody", "file")
            yield place, f"{error.code.value}: {error.detail}"
        except ValueError as error:
            yield ("attestation", "custody", "file"), str(error)

    def _routing(self, section: Routing) -> Iterator[Complaint]:
        for index, tier in enumerate(section.tiers):
            if tier.ca is None:
                continue
            try:
                decode_certificates(self._content(tier.ca))
            except ValueError as error:
                yield ("routing", "tiers", index, "ca"), str(error)
        estimator, drafts = section.estimator, section.speculation
        for part, key, file, sha256 in (
            ("estimator", "file", estimator.file, estimator.sha256),
            ("speculation", "thresholds", drafts.thresholds, drafts.sha256),
        ):
            if file is None:
                continue
            try:
                # The policy's digest covers the file already; this one is for the
                # author, who names the file that was measured.
                if _sha256(self._content(file)) != sha256:
                    yield ("routing", part, "sha256"), "the file has another digest"
            except ValueError as error:
                yield ("routing", part, key), str(error)

    def _content(self, name: str) -> bytes:
        # Once: if a file changed between two readings, the words in force would not be
        # those that the digest covers.
        if name not in self.contents:
            if self.files is None:
                raise ValueError(NO_FILES)
            try:
                self.contents[name] = self.files(name)
            # Not the system's message, which contains the path on this machine.
            except OSError:
                raise ValueError("the file cannot be read") from None
        return self.contents[name]
