"""Every refusal in words: what it means, and what whoever reads it can do.

``docs/attestation.md`` has the same sentences, and a test says so.
"""

from collections.abc import Mapping
from typing import Final

from curtilage.attest.errors import RefusalCode as Code

_ASK: Final = "Ask the enclave's operator"
_NEVER: Final = "Do not use this enclave, and tell its operator"
_LATER: Final = "Wait for the enclave's next evidence; if it lasts, ask its operator"
_TIME: Final = f"Check this machine's clock. {_LATER}"
_PIN: Final = "Compare the policy's `trust_anchors` with the vendor's own publication"

MEANINGS: Final[Mapping[Code, tuple[str, str]]] = {
    Code.MALFORMED: (
        "The bytes are not what they should be: cut, edited or of another kind.",
        "Fetch them again, and compare them with the source.",
    ),
    Code.TOO_LARGE: (
        "It is larger than anything genuine.",
        "Check that it is the right file.",
    ),
    Code.UNSUPPORTED_VERSION: (
        "The format's version is one that is not, or no longer, accepted.",
        "Update this program, or the enclave.",
    ),
    Code.UNSUPPORTED_ALGORITHM: (
        "It is signed or sealed with an algorithm that is not accepted here.",
        f"{_ASK} for evidence of the kind that the policy names.",
    ),
    Code.UNSUPPORTED_PRODUCT: (
        "It comes from a processor, or a kind of enclave, that is not known here.",
        "Update this program, or name another kind of hardware in the policy.",
    ),
    Code.UNSIGNED: (
        "Nobody signed it, so anybody can have written it.",
        "Ask for the report itself instead of somebody's verdict on it.",
    ),
    Code.VERIFIER_UNAVAILABLE: (
        "What verifies this kind of evidence is not installed, or failed.",
        "Install its extra: `curtilage[tdx]`, `curtilage[nitro]`.",
    ),
    Code.UNTRUSTED_ROOT: (
        "The chain does not end at a root that the policy pins.",
        f"{_PIN}.",
    ),
    Code.CHAIN_INVALID: (
        "One certificate does not vouch for the next, or is not for this purpose.",
        "Check that the certificates belong to this chip; else do not use it.",
    ),
    Code.EXPIRED_ENDORSEMENT: (
        "A certificate's time is over.",
        f"{_TIME}.",
    ),
    Code.NOT_YET_VALID: (
        "Something is dated in the future.",
        "Set this machine's clock, or give the right time with `--at`.",
    ),
    Code.REVOKED: (
        "The vendor has withdrawn a certificate of the chain.",
        f"{_NEVER}.",
    ),
    Code.CRL_MISSING: (
        "There is no revocation list, so a withdrawn key would not show.",
        "Bring the vendor's list (`--crl`), or have the enclave staple it.",
    ),
    Code.CRL_INVALID: (
        "The revocation list is not the vendor's, or not of this product.",
        "Fetch the list of this product from its vendor.",
    ),
    Code.CRL_EXPIRED: (
        "The revocation list is out of date, so a newly withdrawn key would not show.",
        f"{_TIME}.",
    ),
    Code.COLLATERAL_EXPIRED: (
        "Intel's statement about the platform is out of date.",
        f"{_TIME}.",
    ),
    Code.COLLATERAL_INVALID: (
        "Intel's statement about the platform is missing, edited or not Intel's.",
        "Fetch the collateral of this platform again.",
    ),
    Code.BAD_SIGNATURE: (
        "The signature does not belong to these bytes and this key.",
        f"{_NEVER}.",
    ),
    Code.ENDORSEMENT_MISMATCH: (
        (
            "The certificates or collateral are of another chip, platform or firmware, "
            "or the policy does not allow their kind (a VLEK, a chip without a name)."
        ),
        "Bring those of this very machine, or see what the policy allows.",
    ),
    Code.DEBUG_ENABLED: (
        "Whoever runs the machine can read its memory: it runs in debug mode.",
        "Do not use it; no policy can allow this.",
    ),
    Code.MIGRATION_AGENT_ALLOWED: (
        (
            "Another program may move its memory to another machine, or may have moved "
            "it here."
        ),
        "Do not use it; no policy can allow this.",
    ),
    Code.VMPL: (
        "The report was made at a privilege level that the policy does not allow.",
        f"{_ASK} what runs at which level, then name it in `snp.vmpl`.",
    ),
    Code.TCB_TOO_LOW: (
        "Firmware or microcode is older than the vendor or the policy demands.",
        f"{_ASK} to update the machine's firmware.",
    ),
    Code.TCB_STATUS: (
        "Intel says of this platform what the policy does not accept.",
        f"{_ASK} to mend it, or name the status in `tdx.statuses` if you accept it.",
    ),
    Code.MEASUREMENT_NOT_ALLOWED: (
        "What runs there is none of the published or pinned builds.",
        "Compare what the evidence shows with the release; do not pin it unseen.",
    ),
    Code.PLATFORM_DENIED: (
        "The policy keeps this very machine out, or the evidence names none.",
        "See `platforms` in the policy.",
    ),
    Code.RELEASE_NOT_LOGGED: (
        "What runs there is of no release that the policy names, or it has expired.",
        "Look the release up in its log (`curtilage release`), and name it.",
    ),
    Code.RELEASE_DENIED: (
        "The policy names this version among those that it refuses.",
        f"{_ASK} for a newer release.",
    ),
    Code.PROOF_INVALID: (
        "The log's proof does not hold, or the log shows two histories.",
        f"{_NEVER}; keep the bundle as evidence.",
    ),
    Code.QUORUM_NOT_MET: (
        "Too few witnesses have signed the log's state.",
        f"{_LATER}.",
    ),
    Code.CHECKPOINT_STALE: (
        "The witnessed state of the log is older than the policy allows.",
        f"{_TIME}.",
    ),
    Code.BINDING_MISMATCH: (
        "Genuine evidence, but made for another key, time, release or question.",
        f"{_NEVER}; somebody may have exchanged the key on the way.",
    ),
    Code.TRANSPORT_NOT_ACCEPTED: (
        "The release shapes its answers in a way that the policy does not accept.",
        "See `transport.accept` in the policy.",
    ),
    Code.DEVICE_MISSING: (
        "The policy requires a GPU of which there is no evidence.",
        f"{_ASK} for a machine with attested GPUs.",
    ),
    Code.DEVICE_MISMATCH: (
        "A GPU's evidence contradicts itself, stands there twice, or is not wanted.",
        f"{_NEVER}.",
    ),
    Code.STALE: (
        "The evidence, or the key, is older than the policy allows.",
        f"{_TIME}.",
    ),
    Code.EMULATED_REFUSED: (
        "No hardware stands behind this, and the policy is for production.",
        "Use a development policy for tests; never for data that matter.",
    ),
    Code.KEY_INCONSISTENT: (
        "Others are shown another key, or this machine was shown one before.",
        "Do not use it: the key may mark you. Ask others what they see.",
    ),
    Code.RECEIPT_INVALID: (
        "The answer came without the receipt that the enclave's evidence promises.",
        "Take the answer for cut off, and ask again.",
    ),
    Code.POLICY_INVALID: (
        "The policy permits nothing, or what proves nothing.",
        "Run `curtilage policy check`.",
    ),
}
