"""The sentences of every failure reason, for people: the only place that has them.

Keyed by the word in audit records, traces and JSON, so that this needs no tier.
"""

from collections.abc import Mapping
from typing import Final

FAILURE_TEXTS: Final[Mapping[str, str]] = {
    # Any tier outside of this process.
    "not_permitted": "no permit was available for this attempt",
    "audit_failed": "the audit trail cannot be written",
    # The local model.
    "local_unavailable": "the local model cannot answer",
    "local_busy": "too many queries wait for the local model",
    "local_too_long": "it exceeds the local model's context",
    "local_out_of_memory": "there is too little memory for the local model",
    "local_slow": "the local model is too slow just now",
    "local_late": "the local model did not answer within its time limit",
    "local_crashed": "the local model's process ended while it answered",
    "local_hung": "the local model's process made no progress and was ended",
    "local_restarting": "the local model's process is being started again",
    "draft_rejected": "the local model's draft was not good enough",
    # An on-premises server.
    "on_premises_unreachable": "the on-premises server cannot be reached",
    "on_premises_untrusted": "the on-premises server does not match the policy: "
    "another CA or key (ca, spki_sha256), a certificate that is expired or names "
    "another host, or a socket that others may replace",
    "on_premises_tls_failed": "TLS handshake with the on-premises server failed: not a "
    "TLS server, or no common version",
    "on_premises_denied": "the on-premises server requires an API key, or another one",
    "on_premises_model_missing": "the on-premises server does not have this model, or "
    "has nothing at this address: check model and address of the tier",
    "on_premises_busy": "the on-premises server is busy",
    "on_premises_refused": "the on-premises server refused the request",
    "on_premises_too_long": "it exceeds the context of the on-premises server's model",
    "on_premises_failed": "the on-premises server reported an error",
    "on_premises_no_logprobs": "the on-premises server returns no log-probabilities, "
    "which were requested",
    "on_premises_not_deterministic": "the on-premises server does not promise the same "
    "answer each time, which was requested",
    "on_premises_answer_broken": "the on-premises server's reply is not a valid OpenAI "
    "API response",
    "on_premises_answer_incomplete": "the on-premises server's answer ended early",
    "on_premises_late": "the on-premises server did not answer in time",
    # The relay and the enclave.
    "not_configured": "no relay is configured",
    "no_enclave_named": "the policy names no enclave (attestation:)",
    "relay_unreachable": "the relay cannot be reached",
    "relay_untrusted": "the relay's certificate is not from a trusted authority, is "
    "not valid by this machine's clock, or names another host (a private authority is "
    "set with --relay-ca)",
    "relay_tls_failed": "TLS handshake with the relay failed: not a TLS server, or no "
    "common version",
    "relay_wants_certificate": "the relay requires a client certificate, or another "
    "one than was presented (--relay-certificate)",
    "relay_hung_up": "the relay closed the connection without a response: it may "
    "require a client certificate (--relay-certificate), or https",
    "relay_knows_no_such": "the relay does not know this address: check the name after "
    "its host (--relay https://host/name)",
    "relay_denied": "the relay does not accept this client's key or certificate",
    "enclave_unreachable": "the relay cannot reach the enclave",
    "evidence_refused": "the enclave's evidence was refused (`curtilage attest show` "
    "names the rule)",
    "clock_suspected": "the enclave's evidence is valid at another time than this "
    "machine's clock shows: the clock is probably wrong; set it. If it is right, the "
    "evidence is outdated",
    "mirror_unreachable": "the policy's mirror of the enclave's keys returned no list "
    "for comparison",
    "key_unknown": "the enclave no longer holds the verified key",
    "date_refused": "the enclave's clock and this machine's differ too much",
    "too_large": "the query is larger than the enclave accepts",
    "enclave_too_long": "it exceeds the context of the enclave's model",
    "too_many_running": "too many connections of earlier queries are still running to "
    "their end",
    "busy": "the enclave is busy",
    "refused": "the enclave refused the request",
    "enclave_refused_query": "the enclave does not accept this request",
    "enclave_model_failed": "the enclave's model failed before it answered",
    "enclave_model_unavailable": "the enclave cannot load its model",
    "answer_broken": "the enclave's answer could not be decrypted",
    "answer_incomplete": "the enclave's answer ended early",
    "answer_late": "the enclave's answer arrived slower than promised: it is delayed "
    "on the way",
    "timeout": "the enclave did not answer in time",
    "receipt_invalid": "the enclave sent no valid receipt for its answer",
    "too_few_nodes": "fewer than half of the enclaves that the relay lists could be "
    "verified; an attacker who hides the others would choose the one that is asked",
    # What the policy requires of an enclave.
    "unmet_hardware": "the policy requires hardware isolation for such data; this "
    "enclave's evidence shows none",
    "unmet_gpu": "the policy requires attested GPUs for such data; this enclave's "
    "evidence shows none",
    "unmet_weights": "for such data, the policy requires a release that names the "
    "model's files; this one names none",
    "unmet_no_write": "the policy requires an attested sandbox without write access "
    "for such data; this enclave's evidence shows none",
    "unmet_isolation": "the policy requires a process of its own for each request with "
    "such data; this enclave's evidence shows none",
    "unmet_ephemerality": "the policy requires that memory is overwritten, or ends, "
    "after each answer about such data; this enclave's evidence does not show it",
    "unmet_custody": "the policy requires a machine of its custody list for such data; "
    "this one is not on it, or the list has ended",
    "unmet_cpu_tee": "the policy requires another kind of hardware for such data",
    "unmet_evidence_age": "the enclave's evidence is older than the policy allows for "
    "such data",
    "unmet_challenge": "the policy requires an answer to a fresh challenge for such "
    "data; there was none",
    "unmet_residency": "the policy restricts who may run an enclave, or where, for "
    "such data; this release does not state it",
    "unmet_consent": "the policy requires the user's consent before such a query is "
    "sent, and there is none",
}

NO_QUEUE: Final = "the policy has no queue (routing.queue), so nothing is queued"
