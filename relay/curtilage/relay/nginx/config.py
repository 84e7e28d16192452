"""Generates an nginx configuration from a relay's configuration.

For operators who need more than the built-in relay. Pure: the same configuration gives
the same bytes. Refuses what nginx (1.22 or later) cannot do safely; what it does
differently is listed in the head of ``templates/relay.nginx.conf``.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

from curtilage.relay import refusals
from curtilage.relay.config import (
    NAME,
    SAFE_TEXT,
    RelayConfig,
    UnixAddress,
    is_address,
    named_files,
    upstream_text,
)
from curtilage.relay.errors import ConfigError
from curtilage.relay.refusals import Refusal
from curtilage.relay.render import (
    SPECIAL,
    SYSTEM_CA_FILE,
    Quoted,
    backend_of,
    listen_text,
    quoted,
    render,
)

NO_NAME: Final = "not a name of a gateway"
RUNTIME_FOLDER: Final = Path("/run/curtilage-relay-nginx")


def nginx_config(config: RelayConfig, folder: Path) -> str:
    """Return a whole nginx configuration with the relay's behaviour.

    Args:
        config: the relay's own configuration.
        folder: for the pid file and the copies of keys; best on a tmpfs.

    Raises:
        ConfigError: nginx cannot do what the configuration asks for; all
            reasons at once.
    """
    _refuse_what_nginx_cannot(config, folder)
    clients = config.clients
    # Behind a UNIX socket all clients count as one.
    if isinstance(config.listen, UnixAddress):
        clients = replace(clients, connections=0, exchanges=0, requests_per_s=0)
    return render(
        "relay.nginx.conf",
        folder=folder,
        limits=config.limits,
        clients=clients,
        gateways={name: backend_of(each) for name, each in config.gateways.items()},
        hosts=[name.decode() for name in sorted(config.hosts)],
        listen=listen_text(config.listen),
        tls=config.tls,
        ca_file=config.upstream_ca_file or SYSTEM_CA_FILE,
        refusal=_refusal,
        title=_title,
    )


def _refuse_what_nginx_cannot(config: RelayConfig, folder: Path) -> None:
    # All problems before a line is written: a text that is nearly right gets deployed.
    problems: list[str] = []
    if not isinstance(config.listen, UnixAddress) and config.listen.port == 0:
        problems.append("listen: nginx needs a port; 0 lets it choose none")
    if config.keys:
        problems.append(
            "access.keys: nginx cannot check salted hashes; use tls.client_ca"
        )
    problems += [
        f"gateways.{pool}: nginx cannot put the bundles of a pool's nodes together"
        for pool in config.pools
    ]
    files = named_files(config.tls, config.upstream_ca_file)
    paths = {"--folder": str(folder), **files}
    texts = {**paths, "listen": listen_text(config.listen)}
    for name, upstream in config.gateways.items():
        # It becomes part of a regular expression.
        if any(NAME.fullmatch(part) is None for part in name.split("/")):
            problems.append(f"gateways.{name}: {NO_NAME}")
        texts[f"gateways.{name}"] = upstream_text(upstream)
        gateway = backend_of(upstream)
        if gateway.scheme == "https" and is_address(gateway.host):
            problems.append(
                f"gateways.{name}: nginx verifies names, not addresses; use a name"
            )
    # A semicolon or a brace in a path would end our line and begin another directive.
    problems += [
        f"{key}: {text!r} {SPECIAL} nginx"
        for key, text in texts.items()
        if SAFE_TEXT.fullmatch(text) is None
    ]
    problems += [
        f"{key}: nginx needs an absolute path"
        for key, text in paths.items()
        if not text.startswith("/")
    ]
    if problems:
        raise ConfigError(*problems)


def _refusal(name: str) -> Quoted:
    """Return what nginx's ``return`` needs for a refusal: a status and a content."""
    refusal = Refusal(name)
    content = quoted(refusals.refusal_body(refusal).decode())
    return Quoted(f"{refusals.status_of(refusal)} {content}")


def _title(name: str) -> Quoted:
    return quoted(refusals.title_of(Refusal(name)))
