"""The configuration files of a deployment, as text.

Each is a whole file with its comments: the operator goes on from there. Values are
written as JSON, whose texts, numbers and lists of texts are TOML's as well.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from curtilage.cli.deploy.sections import Root

GATEWAY_SOCKET: Final = "/run/enclave/gateway.sock"
CERTIFICATE: Final = "/run/secrets/certificate"
KEY: Final = "/run/secrets/key"
INSIDE: Final = "/etc/curtilage"
"""The folder of configurations inside a container."""
TLS_TABLE: Final = f"""\
[tls]
certificate = "{CERTIFICATE}"
key = "{KEY}"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where an enclave finds what it needs, as it sees it.

    Attributes:
        listen: where it answers the relay, or the door.
        evidence: the socket of the evidence process.
        release: the folder of the release.
        root: the root of emulated evidence, PEM; it is written when the emulator
            starts.
        model: ``embedded``, or the path of a GGUF file.
    """

    listen: str
    evidence: str
    release: str
    root: str
    model: str = "embedded"


def enclave_toml(
    places: Places,
    *,
    environment: str,
    roots: Iterable[Root],
    model: str,
    isolation: str,
    log: str,
) -> str:
    """Return an enclave's configuration.

    Args:
        places: see there.
        environment: ``production`` or ``development``.
        roots: at which its evidence may end.
        model: the SHA-256 of the model, hex.
        isolation: what separates requests.
        log: the ``[log]`` table.
    """
    return f"""\
# The enclave. `curtilage-enclave --config FILE --check` says what is wrong with it.
environment = "{environment}"
listen = {json.dumps(places.listen)}
evidence = {json.dumps(places.evidence)}
release = {json.dumps(places.release)}
# A UNIX socket is local to this machine. To listen on TCP without the door, with TLS,
# which is mandatory outside of development:
#   listen = "0.0.0.0:8443"
#   [tls]
#   certificate = "{INSIDE}/tls/enclave.pem"   # then its chain
#   key = "{INSIDE}/tls/enclave.key"

{"".join(_anchor(root, places) for root in roots)}\
# The defaults, written out. A new pair of keys every 6 h; the old one still opens
# requests sealed to it, and is overwritten when its 12 h are over. After that,
# recorded traffic can never be decrypted.
[freshness]
rotate_s = 21600
key_lifetime_s = 43200

# Fresh evidence over a client's own nonce, for the strictest classes of a policy:
# one acquisition at a time, and at least so many seconds between two, for all clients
# together. So 5 s serve 12 clients a minute; the others get "busy", and do not send
# their strictest queries before they succeed.
[challenge]
enabled = true
least_interval_s = 5

# So many requests are answered at the same time, each with a context of its own. Its
# size (`context_tokens`) is what the model was trained for, at most 32,768, and less
# where memory is short; it is printed at the start. `kv_type = "q8_0"` halves its
# memory. With `isolation = "process"` each request has a process of its own
# (docs/operating.md); a release that names the sandbox names the isolation, too.
[model]
sequences = 4
isolation = "{isolation}"
path = {json.dumps(places.model)}
sha256 = "{model}"

# Or an OpenAI-compatible server on this machine (docs/operating.md); then the release
# lists no model:
# engine = "openai"
# address = "unix:/run/engine/engine.sock"
# name = "ward-70b"
# context_tokens = 32768

# The operator's counters, for this account and root (docs/operating.md, "Counters"):
# [counters]
# listen = "unix:/run/enclave/counters.sock"

# The log that holds the release.
{log}"""


def _anchor(root: Root, places: Places) -> str:
    lines = ["[[trust_anchors]]", f'kind = "{root.kind}"']
    if root.product:
        lines.append(f'product = "{root.product}"')
    if root.kind == "emulated":
        lines.append(f"certificate = {json.dumps(places.root)}")
    return "\n".join((*lines, "", ""))


def relay_toml(
    *, gateways: Mapping[str, str], listen: str, hosts: Sequence[str], tls: bool
) -> str:
    """Return a relay's configuration.

    Args:
        gateways: the address of the enclave behind each name.
        listen: the address that clients connect to.
        hosts: names that Host may give; none: any.
        tls: with TLS towards clients; without it, it is for trying on one machine.
    """
    rows = "".join(f"{name} = {json.dumps(to)}\n" for name, to in gateways.items())
    lines = ["# The relay. `curtilage-relay --help` lists all options and defaults."]
    lines.append(f"listen = {json.dumps(listen)}")
    if hosts:
        lines.append(f"hosts = {json.dumps(list(hosts))}")
    if not tls:
        lines.append(
            'environment = "development"   # without TLS: on this machine only'
        )
    head = "\n".join(lines)
    secured = ""
    if tls:
        secured = f"""\
{TLS_TABLE}# Only clients with a certificate of this authority:
#   client_ca = "{INSIDE}/customers.pem"

"""
    return f"""\
{head}
# If the certificate of an enclave is not from a public authority, name the issuing one:
#   upstream_ca_file = "{INSIDE}/enclave-authority.pem"

[gateways]
{rows}
{secured}# Only clients with a key, which `curtilage-relay make-key NAME` makes:
#   [access]
#   keys = ["NAME:SALT:DIGEST"]

[limits]
max_connections = 512
max_upstream = 48            # below the 64 connections that an enclave takes
"""


def gateway_toml(*, names: Sequence[str], rows: Sequence[str]) -> str:
    """Return the file of a department's gateway.

    Args:
        names: by which applications call it.
        rows: one for each application's key.
    """
    return f"""\
# A department's gateway. `curtilage gateway check FILE` says what is wrong with it;
# `curtilage gateway make-key NAME` makes a key and its row.
listen = "0.0.0.0:8443"
names = {json.dumps(list(names))}
keys = {json.dumps(list(rows))}

{TLS_TABLE}
[limits]
in_progress = 32             # requests of one application at the same time
"""


def client_env(*, relay: str) -> str:
    """Return the environment of the gateway's container.

    Args:
        relay: the relay's address, with the gateway's name there.
    """
    return f"""\
# One a line, without quotes.
CURTILAGE_RELAY={relay}
# If no public authority vouches for the relay: its authority, in etc/.
#   CURTILAGE_RELAY_CA={INSIDE}/relay-authority.pem
# If the relay requires a key: RELAY_KEY_FILE of compose names the file.
#   CURTILAGE_RELAY_KEY_FILE=/run/secrets/relay_key
"""
