"""Generates the configuration of nginx or Envoy for a balancer.

Pure: the same configuration gives the same bytes. How the two programs differ is listed
in the heads of ``templates/balancer.nginx.conf`` and ``templates/balancer.envoy.yaml``.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from curtilage.relay.balancer.config import DROPPED, BalancerConfig
from curtilage.relay.config import UnixAddress
from curtilage.relay.render import SYSTEM_CA_FILE, backend_of, listen_text, render

TEMPLATES: Final[Mapping[str, str]] = {
    "envoy": "balancer.envoy.yaml",
    "nginx": "balancer.nginx.conf",
}


def balancer_text(program: str, config: BalancerConfig, folder: Path) -> str:
    """Return a whole configuration that balances.

    Args:
        program: the one that will run; a key of ``TEMPLATES``.
        config: the balancer's own configuration.
        folder: for the pid file, or the socket by which Envoy is drained; best on a
            tmpfs.

    Raises:
        ConfigError: a text has a character with a special meaning to the program.
    """
    shares = config.shares
    # An enclave's clients are relays. Behind a UNIX socket all clients count as one.
    if not config.chooses or isinstance(config.listen, UnixAddress):
        shares = replace(shares, exchanges=0, requests_per_s=0)
    return render(
        TEMPLATES[program],
        folder=folder,
        limits=config.limits,
        clients=shares,
        chooses=config.chooses,
        names={
            name: [backend_of(each) for each in backends]
            for name, backends in config.names.items()
        },
        address=config.listen,
        listen=listen_text(config.listen),
        tls=config.tls,
        ca_file=config.upstream_ca_file or SYSTEM_CA_FILE,
        dropped=DROPPED,
    )
