"""Pieces of a page: sections and tables, as HTML text."""

from collections.abc import Iterable, Sequence
from html import escape


def section(title: str, intro: str, body: str) -> str:
    """Return a section; ``body`` is HTML already."""
    first = f"<p>{escape(intro)}</p>" if intro else ""
    return f"<section><h2>{escape(title)}</h2>{first}{body}</section>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """Return a table; the cells are HTML already, the head is not."""
    top = "".join(f'<th scope="col">{escape(each)}</th>' for each in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows
    )
    return (
        f'<div class="wide"><table class="{kind}"><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
