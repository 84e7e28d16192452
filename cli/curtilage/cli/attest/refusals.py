"""Explanations of all refusal codes: what each means, and what to do.

``docs/attestation.md`` has the same sentences; a test compares them.
"""

from collections.abc import Mapping
from typing import Final

from curtilage.attest.errors import RefusalCode as Code

_ASK: Final = "Ask the enclave's operator"
_NEVER: Final = "Do not use this enclave, and inform its operator"
_LATER: Final = (
    "Wait for the enclave's next evidence; if the error persists, ask its operator"
)
_TIME: Final = f"Check this machine's clock. {_LATER}"
_PIN: Final = "Compare the policy's `trust_anchors` with the vendor's own publication"

MEANINGS: Final[Mapping[Code, tuple[str, str]]] = {
    Code.MALFORMED: (
        "The bytes are invalid: truncated, edited or of another kind.",
        "Fetch them again, and compare them with the source.",
    ),
    Code.TOO_LARGE: (
        "It is larger than any genuine evidence.",
        "Check that it is the right file.",
    ),
    Code.UNSUPPORTED_VERSION: (
        "This version of the format is not, or no longer, accepted.",
        "Update this program, or the enclave.",
    ),
    Code.UNSUPPORTED_ALGORITHM: (
        "It is signed or sealed with an algorithm that is not accepted.",
        f"{_ASK} for evidence of the kind that the policy names.",
    ),
    Code.UNSUPPORTED_PRODUCT: (
        "It comes from an unknown processor or kind of enclave.",
        "Update this program, or name another kind of hardware in the policy.",
    ),
    Code.UNSIGNED: (
        "It is not signed, so anyone could have written it.",
        "Ask for the report itself instead of another party's verdict on it.",
    ),
    Code.VERIFIER_UNAVAILABLE: (
        "The verifier for this kind of evidence is not installed, or failed.",
        "Install its extra: `curtilage[tdx]`, `curtilage[nitro]`.",
    ),
    Code.UNTRUSTED_ROOT: (
        "The chain does not end at a root that the policy pins.",
        f"{_PIN}.",
    ),
    Code.CHAIN_INVALID: (
        "A certificate does not vouch for the next one, or is not for this purpose.",
        "Check that the certificates belong to this chip; otherwise do not use it.",
    ),
    Code.EXPIRED_ENDORSEMENT: (
        "A certificate has expired.",
        f"{_TIME}.",
    ),
    Code.NOT_YET_VALID: (
        "Something is dated in the future.",
        "Set this machine's clock, or give the right time with `--at`.",
    ),
    Code.REVOKED: (
        "The vendor has revoked a certificate of the chain.",
        f"{_NEVER}.",
    ),
    Code.CRL_MISSING: (
        "There is no revocation list, so a revoked key would not be detected.",
        "Add the vendor's list (`--crl`), or have the enclave staple it.",
    ),
    Code.CRL_INVALID: (
        "The revocation list is not the vendor's, or not of this product.",
        "Fetch the list of this product from its vendor.",
    ),
    Code.CRL_EXPIRED: (
        (
            "The revocation list is out of date, so a newly revoked key would not be "
            "detected."
        ),
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
        "Use those of this machine, or check what the policy allows.",
    ),
    Code.DEBUG_ENABLED: (
        "It runs in debug mode, so the machine's operator can read its memory.",
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
        "The policy does not accept Intel's status of this platform.",
        f"{_ASK} to fix it, or name the status in `tdx.statuses` if you accept it.",
    ),
    Code.MEASUREMENT_NOT_ALLOWED: (
        "The running software is not a published or pinned build.",
        "Compare the measurement with the release; do not pin it unchecked.",
    ),
    Code.PLATFORM_DENIED: (
        "The policy excludes this machine, or the evidence does not identify it.",
        "See `platforms` in the policy.",
    ),
    Code.RELEASE_NOT_LOGGED: (
        (
            "The running software is not from a release that the policy names, or the "
            "release has expired."
        ),
        "Look it up in its log (`curtilage release`), and add it to the policy.",
    ),
    Code.RELEASE_DENIED: (
        "The policy refuses this version.",
        f"{_ASK} for a newer release.",
    ),
    Code.PROOF_INVALID: (
        "The log's proof is invalid, or the log shows two histories.",
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
        f"{_NEVER}; someone may have replaced the key in transit.",
    ),
    Code.SANDBOX_OPEN: (
        "By its own self-test, the enclave could leave its sandbox.",
        f"{_NEVER}.",
    ),
    Code.TRANSPORT_NOT_ACCEPTED: (
        "The release shapes its answers in a way that the policy does not accept.",
        "See `transport.accept` in the policy.",
    ),
    Code.DEVICE_MISSING: (
        "The policy requires a GPU, but there is no evidence of one.",
        f"{_ASK} for a machine with attested GPUs.",
    ),
    Code.DEVICE_MISMATCH: (
        "A GPU's evidence is inconsistent, listed twice, or not expected.",
        f"{_NEVER}.",
    ),
    Code.STALE: (
        "The evidence, or the key, is older than the policy allows.",
        f"{_TIME}.",
    ),
    Code.EMULATED_REFUSED: (
        "The evidence is emulated, without hardware, and the policy is for production.",
        "Use a development policy for tests only; never for sensitive data.",
    ),
    Code.KEY_INCONSISTENT: (
        "Others see a different key, or this machine saw a different one before.",
        "Do not use it: the key may identify you. Ask others which key they see.",
    ),
    Code.RECEIPT_INVALID: (
        "The answer came without the receipt that the enclave's evidence promises.",
        "Treat the answer as truncated, and ask again.",
    ),
    Code.POLICY_INVALID: (
        "The policy permits no evidence, or evidence that proves nothing.",
        "Run `curtilage policy check`.",
    ),
}
