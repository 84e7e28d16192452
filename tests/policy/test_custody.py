"""``attestation.custody``: the list is read with the policy, whose digest covers it."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from curtilage.attest.claims import Claim
from curtilage.attest.custody import custody_body
from curtilage.attest.log.signers import LogSigner
from curtilage.policy.document.attachments import NO_FILES, Files
from curtilage.policy.document.load import load_policy, profile_text
from curtilage.policy.errors import PolicyError
from curtilage.policy.expectations import expectations_from, requirement_for
from curtilage.policy.explain.attestation import (
    CLAIMS,
    NEVER_MET,
    attestation_in_words,
)

SIGNER = LogSigner(name="custodian.example", key=Ed25519PrivateKey.generate())
CHIP = "0a" * 64
UNTIL = 1900000000
LIST = SIGNER.note(custody_body([CHIP], UNTIL)).encode()
KEY = "A" * 42
TEXT = (
    profile_text("default")
    + f"""
attestation:
  environment: production
  trust_anchors: [{{kind: amd, product: Genoa}}]
  required_cpu_tees: [sev-snp]
  releases:
    names: [one]
    log:
      origin: example.org/log
      key: {KEY}E=
      witnesses: [{{name: first.example, key: {KEY}I=}}]
      quorum: 1
    max_checkpoint_age_s: 172800
  snp:
    min_version: 3
    vmpl: [0]
    allow_vlek: false
    allow_masked_chip: false
    min_tcb: [{{product: Genoa, bl: 10, tee: 0, snp: 27, ucode: 86}}]
  custody: {{file: machines.txt, name: custodian.example,
    key: {SIGNER.verifier_key.text}}}
  freshness: {{max_key_lifetime_s: 43200, max_evidence_age_s: 60, clock_skew_s: 0}}
  classes: [{{classes: [health], require: [custody]}}]
"""
)


def files(content: bytes = LIST) -> Files:
    def read(name: str) -> bytes:
        assert name == "machines.txt"
        return content

    return read


def test_the_list_is_read_and_said() -> None:
    policy = load_policy(TEXT, files=files())
    custody = expectations_from(policy).custody
    assert custody is not None
    assert (custody.machines, custody.until) == (frozenset({CHIP}), UNTIL)
    assert requirement_for(policy, ["health"]).claims == {Claim.CUSTODY}
    said = dict(attestation_in_words(policy))
    assert said["custody"].startswith(
        "custodian.example answers for 1 machine until 2030-03-17;"
    )
    assert CLAIMS["custody"] in said["demand"]
    assert not said["demand"].endswith(NEVER_MET)


def test_the_policys_digest_covers_the_list() -> None:
    other = SIGNER.note(custody_body(["0b" * 64], UNTIL)).encode()
    digests = {load_policy(TEXT, files=files(each)).digest for each in (LIST, other)}
    assert len(digests) == 2


BAD = {
    "unsigned": LogSigner(name=SIGNER.name, key=Ed25519PrivateKey.generate())
    .note(custody_body([CHIP], UNTIL))
    .encode(),
    "bad_signature": LIST.replace(b"0a0a", b"0b0b", 1),
    "malformed": SIGNER.note("curtilage/custody/v1\nuntil 1\nmachine\n").encode(),
    "not UTF-8": b"\xff",
}


@pytest.mark.parametrize("said", BAD)
def test_a_list_that_cannot_be_trusted_is_an_error(said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        load_policy(TEXT, files=files(BAD[said]))
    (problem,) = caught.value.problems
    assert problem.path == "attestation.custody.file"
    assert said in problem.message


def test_a_list_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(PolicyError) as caught:
        load_policy(TEXT)
    (problem,) = caught.value.problems
    assert (problem.path, problem.message) == ("attestation.custody.file", NO_FILES)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("file: machines.txt", "file: ../machines.txt"),
        ("name: custodian.example", "name: 'a b'"),
        (SIGNER.verifier_key.text, "AAAA"),
        ("file: machines.txt, ", ""),
    ],
    ids=["outside", "name", "key", "no file"],
)
def test_the_section_is_checked(old: str, new: str) -> None:
    assert old in TEXT
    with pytest.raises(PolicyError) as caught:
        load_policy(TEXT.replace(old, new), files=files())
    assert all("attestation.custody" in each.path for each in caught.value.problems)
