"""A second verifier of an exported verdict: the standard library and ``cryptography``.

It imports nothing of this project, reads nothing but the file, and was written from
docs/attestation.md and docs/protocol.md alone, for emulated and genuine SEV-SNP
without GPUs. Each step is a function, in the order of the walk-through.
"""

import base64
import hashlib
import json
import struct
import sys
import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.utils import CryptographyDeprecationWarning

Json = dict[str, Any]
_SIGNED_BYTES = 0x2A0
_NUMBER_BYTES = 72
_DEBUG = 1 << 19
_MIGRATION = 1 << 18
_AMD = "1.3.6.1.4.1.3704.1"
_LEVELS = {"bl": f"{_AMD}.3.1", "tee": f"{_AMD}.3.2", "snp": f"{_AMD}.3.3"}
_LEVELS["ucode"] = f"{_AMD}.3.8"
_CHIP = f"{_AMD}.4"
# Where Milan and Genoa have each level in the eight bytes of a TCB version.
_PLACES = {"bl": 0, "tee": 1, "snp": 6, "ucode": 7}


class StrangerError(Exception):
    """A step did not hold."""


def require(condition: bool, step: str) -> None:
    """Stop at a step that does not hold."""
    if not condition:
        raise StrangerError(step)


def verify(export: bytes) -> Json:
    """Verify an exported verdict as of its own time; return what was found.

    Raises:
        StrangerError: at the first step that does not hold.
    """
    file: Json = json.loads(export)
    canonical = json.dumps(file, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    require(canonical == export, "canonical form")
    now = datetime.fromisoformat(file["made"])
    expected: Json = file["expectations"]
    require(policy_digest(file["policy"]) == expected["digest"], "policy digest")
    bundle: Json = json.loads(base64.b64decode(file["bundle"]))
    parts: Json = file["parts"]
    require(parts["cpu"] == bundle["cpu"], "parts")
    require(parts["log_proof"] == bundle["release"]["proof"], "parts")
    require(parts["checkpoint"] == bundle["anchor"]["checkpoint"], "parts")
    manifest = base64.b64decode(bundle["release"]["manifest"])
    require(parts["manifest"].encode() == manifest, "parts")

    report = base64.b64decode(bundle["cpu"]["report"])
    key = chip_key(bundle["cpu"], report, expected, now)
    check_report(report, key, expected)
    require(report[0x50:0x90] == binding(bundle), "binding")
    check_manifest(json.loads(manifest), report, bundle["cpu"]["tee"], expected, now)
    proven = check_log(bundle, manifest, expected)
    check_times(bundle, proven, expected, now)
    return {
        "accepted": True,
        "measurement": report[0x90:0xC0].hex(),
        "release_digest": hashlib.sha256(manifest).hexdigest(),
        "key_configs": hashlib.sha256(
            base64.b64decode(bundle["key_configs"])
        ).hexdigest(),
        "policy": file["policy"]["digest"],
    }


def policy_digest(policy: Json) -> str:
    """Compute a policy's digest from its text and the digests of its attachments."""

    def sha256(text: str) -> str:
        return hashlib.sha256(text.encode()).hexdigest()

    lines = [f"pack {each['name']} {sha256(each['text'])}" for each in policy["packs"]]
    lines += [f"file {each['name']} {each['sha256']}" for each in policy["files"]]
    digest = sha256(policy["text"])
    if lines:
        head = ["curtilage-policy-digest 1", f"policy {digest}"]
        digest = sha256("".join(f"{line}\n" for line in head + lines))
    return f"sha256:{digest}"


def chip_key(
    cpu: Json, report: bytes, expected: Json, now: datetime
) -> ec.EllipticCurvePublicKey:
    """Verify the chain from a pinned root to the chip's key; return that key."""
    roots = [bytes.fromhex(each["certificate_der"]) for each in expected["roots"]]
    served = base64.b64decode(cpu["ark"])
    pins = {each["fingerprint"] for each in expected["roots"]}
    if served and hashlib.sha256(served).hexdigest() in pins:
        roots.append(served)
    ask = x509.load_der_x509_certificate(base64.b64decode(cpu["ask"]))
    with warnings.catch_warnings():
        # AMD gives its chips' certificates the serial number 0.
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        vek = x509.load_der_x509_certificate(base64.b64decode(cpu["vek"]))
    arks = [x509.load_der_x509_certificate(root) for root in roots if root]
    arks = [ark for ark in arks if ark.subject == ask.issuer]
    require(len(arks) == 1, "root")
    ark = arks[0]
    crl = x509.load_der_x509_crl(base64.b64decode(cpu["crl"]))
    require(vek.issuer == ask.subject, "chain")
    for signed, issuer in ((ark, ark), (ask, ark), (vek, ask)):
        check_pss(signed.signature, signed.tbs_certificate_bytes, issuer)
        require(
            signed.not_valid_before_utc <= now < signed.not_valid_after_utc, "validity"
        )
    check_pss(crl.signature, crl.tbs_certlist_bytes, ark)
    require(crl.issuer == ark.subject, "revocation list")
    ends = crl.next_update_utc
    require(ends is not None and now < ends, "revocation list")
    revoked = {each.serial_number for each in crl}
    require(ask.serial_number not in revoked, "revocation")
    said = {each.oid.dotted_string: _value(each) for each in vek.extensions}
    require(said[_CHIP][-64:] == report[0x1A0:0x1E0], "chip")
    for name, place in _PLACES.items():
        level = int.from_bytes(said[_LEVELS[name]][2:], "big")
        require(level == report[0x180 + place], "patch level")
    key = vek.public_key()
    require(isinstance(key, ec.EllipticCurvePublicKey), "chip key")
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return key


def _value(extension: x509.Extension[x509.ExtensionType]) -> bytes:
    value = extension.value
    return value.value if isinstance(value, x509.UnrecognizedExtension) else b""


def check_pss(signature: bytes, signed: bytes, issuer: x509.Certificate) -> None:
    """Verify RSA-PSS with SHA-384, which AMD's roots sign with."""
    key = issuer.public_key()
    require(isinstance(key, rsa.RSAPublicKey), "issuer key")
    assert isinstance(key, rsa.RSAPublicKey)
    scheme = padding.PSS(padding.MGF1(hashes.SHA384()), 48)
    key.verify(signature, signed, scheme, hashes.SHA384())


def check_report(report: bytes, key: ec.EllipticCurvePublicKey, expected: Json) -> None:
    """Verify a report's signature and the state of its machine."""
    signed, tail = report[:_SIGNED_BYTES], report[_SIGNED_BYTES:]
    r = int.from_bytes(tail[:_NUMBER_BYTES], "little")
    s = int.from_bytes(tail[_NUMBER_BYTES : 2 * _NUMBER_BYTES], "little")
    key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(hashes.SHA384()))
    (policy,) = struct.unpack_from("<Q", report, 0x08)
    require(not policy & (_DEBUG | _MIGRATION), "guest policy")
    (level,) = struct.unpack_from("<I", report, 0x30)
    require(level in expected["snp"]["vmpl"], "VMPL")
    require(report[0xC0:0xE0].hex() in expected["snp"]["host_data"], "host data")
    # Reported, committed and launched: each at least the policy's.
    least = min(expected["snp"]["min_tcb"].values(), key=json.dumps)
    for offset in (0x180, 0x1E0, 0x1F0):
        for name, place in _PLACES.items():
            require(report[offset + place] >= least[name], "patch level")


def binding(bundle: Json) -> bytes:
    """Compute the report data that bind the bundle's keys, release and time."""

    def lp(data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + data

    def octets(name: str) -> bytes:
        return base64.b64decode(bundle[name])

    anchor = bundle["anchor"]
    manifest = base64.b64decode(bundle["release"]["manifest"])
    base = b"".join(
        (
            b"curtilage/binding/v3\0",
            lp(octets("key_configs")),
            struct.pack(">QQ", bundle["not_before"], bundle["not_after"]),
            lp(hashlib.sha256(manifest).digest()),
            lp(anchor["origin"].encode()),
            struct.pack(">Q", anchor["size"]),
            lp(base64.b64decode(anchor["root"])),
            struct.pack(">Q", anchor["time"]),
            lp(octets("receipt_public_key")),
            lp(octets("sandbox")),
            lp(octets("transport_parameters")),
        )
    )
    kind = "-emulated" if bundle["cpu"]["tee"].startswith("emulated-") else ""
    label = f"curtilage/report-data{kind}/v2\0".encode()
    # No devices: their number and nothing more.
    require(bundle["devices"] == [], "devices")
    return hashlib.sha512(
        label + hashlib.sha512(base).digest() + struct.pack(">I", 0)
    ).digest()


def check_manifest(
    manifest: Json, report: bytes, tee: str, expected: Json, now: datetime
) -> None:
    """Verify that a release is a wanted one, and the one that was measured."""
    require(tee in expected["required_cpu_tees"], "kind of evidence")
    require(manifest["name"] in expected["release_names"], "release")
    named = f"{manifest['name']} {manifest['version']}"
    require(named not in expected["denied_releases"], "denied release")
    require(now.timestamp() < manifest["not_after"], "withdrawn release")
    accepted = [each["launch"] for each in manifest["measurements"].get(tee, [])]
    require(report[0x90:0xC0].hex() in accepted, "measurement")
    shapes = expected["transport"]
    shape = manifest["transport"]
    require(
        any(all(shape[name] == each[name] for name in each) for each in shapes),
        "transport",
    )


def check_log(bundle: Json, manifest: bytes, expected: Json) -> int:
    """Verify that the release is in the log; return when witnesses saw the proof."""
    head, _, note = bundle["release"]["proof"].partition("\n\n")
    first, index, *path = head.split("\n")
    require(first == "c2sp.org/tlog-proof@v1", "log proof")
    number = int(index.removeprefix("index "))
    siblings = [base64.b64decode(each) for each in path]
    size, root, time = checkpoint(note, expected["log"])
    leaf = hashlib.sha256(b"\0" + manifest).digest()
    require(root_of(leaf, number, size, siblings) == root, "log proof")
    anchor = bundle["anchor"]
    anchored = checkpoint(anchor["checkpoint"], expected["log"])
    require(anchored[0] == anchor["size"], "anchor")
    require(anchored[1] == base64.b64decode(anchor["root"]), "anchor")
    require(anchored[2] == anchor["time"], "anchor")
    # One tree, so one history; two sizes need the consistency proof, which this
    # verifier does not read.
    require(anchored[0] != size or anchored[1] == root, "two histories")
    return time


def checkpoint(note: str, log: Json) -> tuple[int, bytes, int]:
    """Verify a checkpoint: the log's signature and a quorum of cosignatures."""
    body, _, tail = note.rpartition("\n\n")
    text = f"{body}\n".encode()
    origin, size, root = body.split("\n")[:3]
    require(origin == log["origin"], "log")
    lines: dict[tuple[str, bytes], bytes] = {}
    for line in tail.rstrip("\n").split("\n"):
        _, name, data = line.split(" ")
        raw = base64.b64decode(data)
        lines[name, raw[:4]] = raw[4:]

    def signature(name: str, key: bytes, kind: int) -> bytes | None:
        tag = hashlib.sha256(f"{name}\n".encode() + bytes([kind]) + key).digest()[:4]
        return lines.get((name, tag))

    key = bytes.fromhex(log["public_key"])
    signed = signature(log["origin"], key, 1)
    require(signed is not None, "log signature")
    Ed25519PublicKey.from_public_bytes(key).verify(signed or b"", text)
    times: list[int] = []
    for name, digits in log["witnesses"].items():
        key = bytes.fromhex(digits)
        cosigned = signature(name, key, 4)
        if cosigned is None:
            continue
        (time,) = struct.unpack(">Q", cosigned[:8])
        message = f"cosignature/v1\ntime {time}\n".encode() + text
        Ed25519PublicKey.from_public_bytes(key).verify(cosigned[8:], message)
        times.append(time)
    quorum = int(log["quorum"])
    require(len(times) >= quorum >= 1, "witnesses")
    return int(size), base64.b64decode(root), sorted(times, reverse=True)[quorum - 1]


def root_of(leaf: bytes, index: int, size: int, siblings: Sequence[bytes]) -> bytes:
    """Compute a tree's root from a leaf and its proof (RFC 9162, section 2.1.3.2)."""
    require(0 <= index < size, "log proof")
    node, last, root = index, size - 1, leaf
    for sibling in siblings:
        require(last > 0, "log proof")
        if node & 1 or node == last:
            root = hashlib.sha256(b"\1" + sibling + root).digest()
            while node and not node & 1:
                node, last = node >> 1, last >> 1
        else:
            root = hashlib.sha256(b"\1" + root + sibling).digest()
        node, last = node >> 1, last >> 1
    require(last == 0, "log proof")
    return root


def check_times(
    bundle: Json, proven: int, expected: Mapping[str, Any], now: datetime
) -> None:
    """Verify that key, evidence and proof are of an age that the policy accepts."""
    rules, seconds = expected["freshness"], now.astimezone(UTC).timestamp()
    life = bundle["not_after"] - bundle["not_before"]
    require(life <= rules["max_key_lifetime_s"], "key lifetime")
    require(
        bundle["not_before"] - rules["clock_skew_s"] <= seconds < bundle["not_after"],
        "key window",
    )
    age = seconds - bundle["anchor"]["time"]
    require(-rules["clock_skew_s"] <= age < rules["max_evidence_age_s"], "evidence age")
    age = seconds - proven
    limit = expected["log"]["max_checkpoint_age_s"]
    require(-rules["clock_skew_s"] <= age < limit, "proof age")


def main(path: str) -> None:
    """Print what was found in a file."""
    with open(path, "rb") as file:  # noqa: PTH123 - as a stranger would write it
        found = verify(file.read())
    for name, value in found.items():
        print(f"{name}: {value}")  # noqa: T201 - a program for people


if __name__ == "__main__":
    main(sys.argv[1])
