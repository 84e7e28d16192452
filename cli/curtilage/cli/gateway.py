"""``curtilage gateway``: makes keys of applications, and checks a gateway's file."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from curtilage.cli.declared import Arguments
from curtilage.cli.terminal import DONE, err, out, out_json, plural
from curtilage.client.endpoint.gateway_file import read_gateway_file
from curtilage.client.endpoint.gateway_notices import notices
from curtilage.client.endpoint.keys import make_key
from curtilage.client.endpoint.listener import server_context


def run_make_key(arguments: Arguments) -> int:
    """Print a new key, once, and the row to store."""
    key, record = make_key(arguments.name)
    if arguments.json:
        out_json({"key": key, "row": record.row()})
    else:
        out(f'key: {key}\nrow: "{record.row()}"')
        err("the key is stored nowhere: give it to the application now")
    return DONE


def run_check(arguments: Arguments) -> int:
    """Show what a gateway's file says; fail if it cannot be used."""
    file = read_gateway_file(Path(arguments.file))
    if file.tls is not None:
        server_context(file.tls)
    noticed = notices(file, datetime.now(UTC))
    keys = dict(sorted(Counter(each.name for each in file.records).items()))
    if arguments.json:
        out_json(
            {
                "listen": f"{file.host}, port {file.port}",
                "tls": file.tls is not None,
                "names": sorted(file.names),
                "applications": keys,
                "in_progress": file.in_progress,
                "notices": noticed,
            }
        )
        return DONE
    tls = "TLS" if file.tls is not None else "without TLS, for a proxy on this machine"
    out(f"listens on {file.host}, port {file.port}, {tls}")
    out(f"answers to {', '.join(sorted(file.names))}")
    out(f"at most {file.in_progress} requests of one application in progress")
    for name, count in keys.items():
        out(f"application {name}: {count} {plural(count, 'key')}")
    for notice in noticed:
        err(notice)
    return DONE
