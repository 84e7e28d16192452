"""The conformance cases of Sigstore, each with the outcome that our rules want."""

import hashlib
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# sigstore's: it binds a socket when it is imported, to see whether there is IPv6.
import urllib3  # noqa: F401  # pyright: ignore[reportUnusedImport]

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.transparency.errors import FileError, InputError, TransparencyError
from curtilage.transparency.files import NOT_ORDINARY
from curtilage.transparency.sigstore import (
    MISSING,
    Publisher,
    PublisherSignature,
    statement_about,
    verify_bundle,
)

IDENTITY = (
    "https://github.com/sigstore-conformance/extremely-dangerous-public-oidc-beacon/"
    ".github/workflows/extremely-dangerous-oidc-beacon.yml@refs/heads/main"
)
ISSUER = "https://token.actions.githubusercontent.com"
# Accepted by the specification and refused by us: bundles before version 0.3 carry
# a chain of certificates.
LEGACY = {
    "happy-path-v0.1",
    "happy-path-v0.2",
    "intoto-with-custom-trust-root",
    "trust-root-tlog-validity-end-inclusive",
}
# The library does not accept these, which is the safe side.
FAIL_CLOSED = {"trust-root-tsa-validity-end-inclusive"}
# A bare key instead of a certificate: neither the library nor we take it.
MANAGED_KEY = {"managed-key-and-trusted-root", "managed-key-happy-path"}


@pytest.fixture(autouse=True)
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("verification opened a socket")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(scope="module")
def folder(shared_dir: Path) -> Path:
    path = shared_dir / "evidence" / "sigstore" / "bundle-verify"
    if not path.is_dir():
        pytest.skip("SKIPPED LOUDLY: no cases in evidence/sigstore")
    return path


def verify_case(
    case: Path,
    *,
    manifest: bytes | None = None,
    bundle: bytes | None = None,
    root: Path | None = None,
    publisher: Publisher | None = None,
) -> PublisherSignature:
    """Verify a case, or a case with something else in place of its own."""

    def either(name: str, default: Path) -> Path:
        return case / name if (case / name).exists() else default

    def text(name: str, default: str) -> str:
        return (case / name).read_text().strip() if (case / name).exists() else default

    own = either("artifact", case.parent / "a.txt").read_bytes()
    production = case.parents[1] / "trusted_root.production.json"
    return verify_bundle(
        own if manifest is None else manifest,
        bundle or (case / "bundle.sigstore.json").read_bytes(),
        root or either("trusted_root.json", production),
        publisher
        or Publisher(
            identity=text("identity", IDENTITY), issuer=text("issuer", ISSUER)
        ),
    )


def code(call: Callable[[], object]) -> RefusalCode:
    with pytest.raises(RefusedError) as caught:
        call()
    return caught.value.code


def test_every_case_has_its_outcome(folder: Path) -> None:
    """67 cases; 65 as the library's own verdict, less those of older formats."""
    wrong: list[str] = []
    accepted = 0
    for case in sorted(path for path in folder.iterdir() if path.is_dir()):
        refused = case.name.endswith("_fail")
        expected = not refused and case.name not in LEGACY | FAIL_CLOSED | MANAGED_KEY
        try:
            verify_case(case)
        except RefusedError:
            found = False
        else:
            found = True
            accepted += 1
        if found != expected:
            wrong.append(case.name)
    assert wrong == []
    assert accepted > 10


def test_an_envelope_states_something_about_the_manifest(folder: Path) -> None:
    found = verify_case(folder / "rekor2-dsse-happy-path")
    assert found.statement
    assert code(
        lambda: verify_case(folder / "rekor2-dsse-happy-path", manifest=b"another")
    ) is (RefusalCode.BAD_SIGNATURE)


def test_another_manifest_was_not_signed(folder: Path) -> None:
    assert verify_case(folder / "rekor2-happy-path").statement == ""
    assert code(
        lambda: verify_case(folder / "rekor2-happy-path", manifest=b"another")
    ) is (RefusalCode.BAD_SIGNATURE)


@pytest.mark.parametrize(
    "publisher",
    [
        Publisher(identity=IDENTITY[:-1], issuer=ISSUER),
        Publisher(identity=IDENTITY + "x", issuer=ISSUER),
        Publisher(identity=IDENTITY.replace("heads", "tags"), issuer=ISSUER),
        Publisher(identity=IDENTITY, issuer=ISSUER + "/"),
    ],
    ids=["shorter", "longer", "tag", "issuer"],
)
def test_the_identity_is_exact(folder: Path, publisher: Publisher) -> None:
    case = folder / "rekor2-happy-path"
    assert code(lambda: verify_case(case, publisher=publisher)) is (
        RefusalCode.ENDORSEMENT_MISMATCH
    )


@pytest.mark.parametrize(
    "publisher",
    [Publisher(identity="", issuer="x"), Publisher(identity="x", issuer="")],
)
def test_an_identity_is_always_asked_for(tmp_path: Path, publisher: Publisher) -> None:
    with pytest.raises(InputError):
        verify_bundle(b"", b"", tmp_path, publisher)


def test_another_root_is_no_root(folder: Path, tmp_path: Path) -> None:
    case = folder / "happy-path-v0.3"
    other = folder / "rekor2-happy-path" / "trusted_root.json"
    assert code(lambda: verify_case(case, root=other)) in {
        RefusalCode.CHAIN_INVALID,
        RefusalCode.BAD_SIGNATURE,
    }
    (tmp_path / "root.json").write_text("{}")
    assert (
        code(lambda: verify_case(case, root=tmp_path / "root.json"))
        is RefusalCode.POLICY_INVALID
    )
    with pytest.raises(FileError):
        verify_case(case, root=tmp_path / "missing.json")


def test_a_trusted_root_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    bundle: dict[str, object] = {
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {"certificate": {}},
        "messageSignature": {},
    }
    publisher = Publisher(identity=IDENTITY, issuer=ISSUER)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match=NOT_ORDINARY):
        verify_bundle(b"", json.dumps(bundle).encode(), tmp_path / "pipe", publisher)


def changed(folder: Path, change: Callable[[dict[str, Any]], object]) -> bytes:
    bundle = json.loads(
        (folder / "rekor2-happy-path" / "bundle.sigstore.json").read_text()
    )
    change(bundle)
    return json.dumps(bundle).encode()


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], object], RefusalCode]] = {
    "no media type": (lambda b: b.pop("mediaType"), RefusalCode.UNSUPPORTED_VERSION),
    "0.2": (
        lambda b: b.update(
            mediaType="application/vnd.dev.sigstore.bundle+json;version=0.2"
        ),
        RefusalCode.UNSUPPORTED_VERSION,
    ),
    "no material": (lambda b: b.pop("verificationMaterial"), RefusalCode.MALFORMED),
    "a key too": (
        lambda b: b["verificationMaterial"].update(publicKey={"hint": "x"}),
        RefusalCode.MALFORMED,
    ),
    "a chain too": (
        lambda b: b["verificationMaterial"].update(
            x509CertificateChain={"certificates": []}
        ),
        RefusalCode.MALFORMED,
    ),
    "unknown field": (lambda b: b.update(more=1), RefusalCode.MALFORMED),
    "no signature": (lambda b: b.pop("messageSignature"), RefusalCode.MALFORMED),
    "an envelope too": (lambda b: b.update(dsseEnvelope={}), RefusalCode.MALFORMED),
    "no entry": (
        lambda b: b["verificationMaterial"].update(tlogEntries=[]),
        RefusalCode.MALFORMED,
    ),
    "material is a list": (
        lambda b: b.update(verificationMaterial=["certificate"]),
        RefusalCode.MALFORMED,
    ),
}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a key too", "a chain of certificates, a key"),
        ("a chain too", "a chain of certificates, a key"),
        ("unknown field", "not exactly one"),
        ("no signature", "not exactly one"),
        ("an envelope too", "not exactly one"),
    ],
)
def test_our_own_rules_speak_before_the_library(
    tmp_path: Path, folder: Path, name: str, said: str
) -> None:
    """Also before it is imported: there is no trusted root to read yet."""
    bundle = changed(folder, CHANGES[name][0])
    publisher = Publisher(identity=IDENTITY, issuer=ISSUER)
    with pytest.raises(RefusedError) as caught:
        verify_bundle(b"", bundle, tmp_path / "missing.json", publisher)
    assert said in caught.value.detail


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_bundle_is_refused(folder: Path, name: str) -> None:
    change, expected = CHANGES[name]
    bundle = changed(folder, change)
    case = folder / "rekor2-happy-path"
    assert code(lambda: verify_case(case, bundle=bundle)) is expected


@pytest.mark.parametrize(
    ("bundle", "expected"),
    [
        (b"", RefusalCode.MALFORMED),
        (b"[]", RefusalCode.MALFORMED),
        (b"{", RefusalCode.MALFORMED),
        (b"[" * 100_000, RefusalCode.MALFORMED),
        (b'{"mediaType":1,"mediaType":1}', RefusalCode.MALFORMED),
        (b" " * (4 * 1024 * 1024 + 1), RefusalCode.TOO_LARGE),
    ],
    ids=["empty", "list", "cut", "deep", "twice", "huge"],
)
def test_an_invalid_bundle_is_refused(
    tmp_path: Path, bundle: bytes, expected: RefusalCode
) -> None:
    publisher = Publisher(identity="x", issuer="y")
    assert code(lambda: verify_bundle(b"", bundle, tmp_path, publisher)) is expected


def test_a_missing_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in sys.modules if each.split(".")[0] == "sigstore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sigstore", None)
    bundle = json.dumps(
        {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {"certificate": {}},
            "messageSignature": {},
        }
    ).encode()
    publisher = Publisher(identity="x", issuer="y")
    with pytest.raises(TransparencyError, match=r"curtilage\[sigstore\]") as caught:
        verify_bundle(b"", bundle, tmp_path / "root.json", publisher)
    assert str(caught.value) == MISSING


# --- in-toto statements -------------------------------------------------------


def statement(**other: object) -> bytes:
    whole: dict[str, object] = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": "other", "digest": {"sha256": "00" * 32}},
            {"name": "manifest.json", "digest": {"sha256": SHA256}},
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {"buildDefinition": {"deep": [1, {"er": "x"}]}},
    }
    return json.dumps(whole | other).encode()


SHA256 = hashlib.sha256(b"manifest").hexdigest()
IN_TOTO = "application/vnd.in-toto+json"


def test_a_statement_about_the_manifest_is_read() -> None:
    found = statement_about(IN_TOTO, statement(), b"manifest")
    assert found == "https://slsa.dev/provenance/v1"


def subject(**more: object) -> list[object]:
    return [{"name": "m", "digest": {"sha256": SHA256}} | more]


STATEMENTS: dict[str, tuple[bytes, RefusalCode]] = {
    "unknown field": (statement(more=1), RefusalCode.MALFORMED),
    "unknown field of a subject": (
        statement(subject=subject(uri="https://x")),
        RefusalCode.MALFORMED,
    ),
    "no subject": (statement(subject=[]), RefusalCode.BAD_SIGNATURE),
    "no list": (statement(subject={}), RefusalCode.MALFORMED),
    "another digest": (
        statement(subject=subject(digest={"sha256": "11" * 32})),
        RefusalCode.BAD_SIGNATURE,
    ),
    "another algorithm": (
        statement(subject=subject(digest={"sha512": SHA256})),
        RefusalCode.MALFORMED,
    ),
    "another type": (
        statement(_type="https://in-toto.io/Statement/v0.1"),
        RefusalCode.UNSUPPORTED_VERSION,
    ),
    "no predicate": (statement(predicate=None), RefusalCode.MALFORMED),
    "predicate type": (statement(predicateType=1), RefusalCode.MALFORMED),
    "twice": (
        statement()[:-1] + b',"subject":[]}',
        RefusalCode.MALFORMED,
    ),
    "no JSON": (b"manifest", RefusalCode.MALFORMED),
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_another_statement_is_refused(name: str) -> None:
    payload, expected = STATEMENTS[name]
    assert code(lambda: statement_about(IN_TOTO, payload, b"manifest")) is expected


def test_another_payload_is_refused() -> None:
    payload = statement()
    assert code(lambda: statement_about("text/plain", payload, b"manifest")) is (
        RefusalCode.UNSUPPORTED_VERSION
    )
