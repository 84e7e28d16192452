"""Public names: media types, problem types and fixed paths."""

from typing import Final

# RFC 9458, sections 9.1 to 9.3.
OHTTP_KEYS: Final = "application/ohttp-keys"
OHTTP_REQUEST: Final = "message/ohttp-req"
OHTTP_RESPONSE: Final = "message/ohttp-res"

# Chunked Oblivious HTTP, "IANA Considerations".
OHTTP_CHUNKED_REQUEST: Final = "message/ohttp-chunked-req"
OHTTP_CHUNKED_RESPONSE: Final = "message/ohttp-chunked-res"

# RFC 9457; the problem types are RFC 9458, sections 5.3 and 6.5.2.
PROBLEM_JSON: Final = "application/problem+json"
PROBLEM_OHTTP_KEY: Final = "https://iana.org/assignments/http-problem-types#ohttp-key"
PROBLEM_DATE: Final = "https://iana.org/assignments/http-problem-types#date"

# Ours: the evidence that binds a list of key configurations (docs/protocol.md, "The
# evidence bundle").
EVIDENCE_BUNDLE: Final = "application/vnd.curtilage.evidence-bundle+json"

# The same of all nodes of a pool, as a node list (docs/protocol.md, "Pools").
EVIDENCE_BUNDLES: Final = "application/vnd.curtilage.evidence-bundles"
KEY_LISTS: Final = "application/vnd.curtilage.key-lists"

# RFC 9540, section 5, names the first; the other two are ours.
GATEWAY_PATH: Final = "/.well-known/ohttp-gateway"
KEYS_PATH: Final = "/ohttp-keys"
BUNDLE_PATH: Final = "/attestation-bundle"
