"""Renders the templates of nginx and Envoy configurations.

The relay's only door to Jinja2, which only the commands that write a configuration
load. The templates are in ``templates/``; they are read and reviewed as configurations.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from curtilage.relay.config import SAFE_TEXT, Listen, UnixAddress, Upstream
from curtilage.relay.errors import ConfigError

SPECIAL: Final = "has characters with a special meaning to"
SYSTEM_CA_FILE: Final = Path("/etc/ssl/certs/ca-certificates.crt")
"""The path of the system's certificates on Debian, Ubuntu and Alpine."""


class Quoted(str):
    """A constant text of ours between nginx's quotes.

    The only text that a template may put in although it has special characters.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """An upstream's address in the parts that a template needs.

    Attributes:
        scheme: of the connection to it; http on a UNIX socket.
        authority: the value of Host.
        host: its name, as its certificate has it.
        port: of the host.
        path: of the UNIX socket; empty over TCP.
    """

    scheme: str
    authority: str
    host: str
    port: int = 0
    path: str = ""

    @property
    def address(self) -> str:
        """The address of a server in an upstream block of nginx."""
        if self.path:
            return f"unix:{self.path}"
        return host_port(self.host, self.port)


def render(template: str, **values: object) -> str:
    """Return a template with its values.

    Args:
        template: its file name.
        values: numbers and texts, or objects that have them as attributes.

    Raises:
        ConfigError: a text has a character with a special meaning to nginx or Envoy.
        jinja2.UndefinedError: the template needs a value that was not given.
    """
    # Here, so that a relay that serves never loads it.
    from jinja2 import (  # noqa: PLC0415
        Environment,
        FunctionLoader,
        StrictUndefined,
    )

    folder = files("curtilage.relay") / "templates"
    environment = Environment(
        loader=FunctionLoader(lambda name: (folder / name).read_text("utf-8")),
        autoescape=False,  # noqa: S701 - it writes no HTML; see finalize
        finalize=_checked,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(_FILTERS)
    return environment.get_template(template).render(values)


def _checked(value: object) -> str:
    # Every value of every template passes here. A semicolon, a quote or a line break in
    # it would end a directive and begin another one. Numbers with a unit are formatted
    # by a filter, so a float is a mistake of the template.
    if isinstance(value, Quoted) or type(value) is int:
        return str(value)
    if isinstance(value, str | Path) and SAFE_TEXT.fullmatch(str(value)):
        return str(value)
    raise ConfigError(f"{value!r} {SPECIAL} nginx or Envoy")


def backend_of(upstream: Upstream) -> Backend:
    """Split an address into its parts."""
    if isinstance(upstream, UnixAddress):
        local = "localhost"
        return Backend(scheme="http", authority=local, host=local, path=upstream.path)
    url = urlsplit(upstream.origin)
    return Backend(
        scheme=url.scheme,
        authority=url.netloc,
        host=url.hostname or "",
        port=url.port or (443 if url.scheme == "https" else 80),
    )


def listen_text(listen: Listen) -> str:
    """Return the address to listen on, as nginx writes it."""
    if isinstance(listen, UnixAddress):
        return f"unix:{listen.path}"
    return host_port(listen.host, listen.port)


def host_port(host: str, port: int) -> str:
    """Return a host and a port; an IPv6 address gets its brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def quoted(text: str) -> Quoted:
    """Quote a text for nginx; variables in it remain variables."""
    # The backslash first, or those added for the quotes would be doubled too.
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return Quoted(f"'{escaped}'")


def milliseconds(seconds: float) -> str:
    """Format a duration for nginx; at least 1 ms, since 0 means for ever."""
    return f"{max(1, round(seconds * 1000))}ms"


def decimal_seconds(seconds: float) -> str:
    """Format a duration for Envoy; at least 1 ms, since 0 means for ever."""
    return f"{max(0.001, round(seconds, 3)):g}s"


def whole_seconds(seconds: float) -> int:
    """Return the nearest number of seconds, at least 1."""
    return max(1, round(seconds))


def rate(per_second: float) -> str:
    """Return the nearest rate that nginx can write: whole, per second or minute."""
    if per_second == int(per_second):
        return f"{int(per_second)}r/s"
    return f"{max(1, round(per_second * 60))}r/m"


_FILTERS: Final[dict[str, Callable[..., object]]] = {
    "ms": milliseconds,
    "s": decimal_seconds,
    "whole": whole_seconds,
    "rate": rate,
}
