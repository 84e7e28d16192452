"""The style of a report's page: readable on a screen, in the dark, and printed.

Colours are those of Okabe and Ito, which people who see fewer colours tell
apart; every colour comes with a word or a shape. Text has a contrast of at
least 7 to 1 with what is behind it, in both schemes.

Pieces of a page: sections and tables, as HTML text.
"""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1a1d21; --soft: #4a5159; --edge: #d5dae0;
  --band: #f4f6f8; --own: #0072b2; --stock: #e69f00; --target: #1a1d21;
  --block: #5c1a1a; --local: #0b4f79; --names: #6b4500; --leave: #1f5132;
  --block-back: #fbe9e7; --local-back: #e3f1fa; --names-back: #fff3d6;
  --leave-back: #e4f4e8; --third: #009e73; --fourth: #a0467e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171a; --ink: #eceff2; --soft: #b9c1c9; --edge: #3a4149;
    --band: #1d2125; --own: #56b4e9; --stock: #e69f00; --target: #eceff2;
    --block: #ffb4a8; --local: #a8d8f5; --names: #ffd98a; --leave: #a9e2b8;
    --block-back: #3d1f1c; --local-back: #123349; --names-back: #3b2e10;
    --leave-back: #17351f; --third: #2fc79b; --fourth: #e08cc0;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, "Segoe UI", Roboto, "Noto Sans", Arial, sans-serif;
}
main { max-width: 70rem; margin: 0 auto; padding: 2.5rem 1.5rem 4rem; }
header { border-bottom: 3px solid var(--own); padding-bottom: 1.5rem; }
.kicker { margin: 0; color: var(--soft); letter-spacing: .04em; }
h1 { margin: .1rem 0 .8rem; font-size: 2.3rem; line-height: 1.15; }
h2 { margin: 3rem 0 .6rem; font-size: 1.5rem; }
h3 { margin: 2rem 0 .3rem; font-size: 1.12rem; }
p { margin: .5rem 0; max-width: 52rem; }
.lead { font-size: 1.1rem; }
.small { font-size: .875rem; color: var(--soft); max-width: none; }
code {
  font: .86em/1.4 ui-monospace, "DejaVu Sans Mono", Consolas, monospace;
  overflow-wrap: anywhere;
}
.tiles { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1.4rem 0; }
.tiles div {
  flex: 1 1 11rem; padding: .8rem 1rem; background: var(--band);
  border: 1px solid var(--edge); border-radius: .5rem;
}
.tiles strong { display: block; font-size: 1.7rem; line-height: 1.2; }
.tiles span { color: var(--soft); font-size: .92rem; }
dl {
  display: grid; grid-template-columns: 9.5rem 1fr; gap: .35rem 1rem;
  margin: 1rem 0;
}
dt { color: var(--soft); }
dd { margin: 0; }
.wide { overflow-x: auto; margin: .8rem 0 1.2rem; }
table { width: 100%; border-collapse: collapse; font-size: .95rem; }
th, td {
  padding: .55rem .7rem; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--edge);
}
th { background: var(--band); font-weight: 600; }
td p { margin: .35rem 0 0; }
.rules td:nth-child(1) { width: 31%; } .rules td:nth-child(2) { width: 17%; }
.covers td:nth-child(1) { width: 14%; } .covers td:nth-child(2) { width: 27%; }
.covers td:nth-child(3) { width: 34%; }
.figures td:nth-child(n+2) { white-space: nowrap; }
.figures td:nth-child(4) { text-align: right; }
.route {
  display: inline-block; padding: .1rem .55rem; border-radius: 1rem;
  border: 1px solid currentColor; font-size: .875rem; font-weight: 600;
  white-space: nowrap;
}
.route.block { color: var(--block); background: var(--block-back); }
.route.local { color: var(--local); background: var(--local-back); }
.route.deidentify { color: var(--names); background: var(--names-back); }
.route.enclave { color: var(--leave); background: var(--leave-back); }
.note, .warning { padding: .6rem .9rem; border-left: 4px solid var(--edge); }
.note, .warning { background: var(--band); }
.warning { border-left-color: var(--stock); }
.met { color: var(--leave); font-weight: 600; }
.unmet { color: var(--block); font-weight: 700; text-decoration: underline; }
figure { margin: 1.4rem 0; }
figcaption { font-weight: 600; margin-bottom: .3rem; max-width: 52rem; }
svg { display: block; width: 100%; max-width: 60rem; height: auto; }
svg text { fill: var(--ink); font-size: 13px; font-family: inherit; }
svg .tick, svg .point { fill: var(--soft); font-size: 12px; }
svg .point { paint-order: stroke; stroke: var(--paper); stroke-width: 4px; }
svg .axis { fill: var(--soft); }
svg .value { font-weight: 600; }
svg .grid { stroke: var(--edge); }
svg .own, .key.own { fill: var(--own); background: var(--own); }
svg .stock, .key.stock { fill: var(--stock); background: var(--stock); }
svg .whisker { stroke: var(--ink); stroke-width: 1.5; }
svg .target { stroke: var(--target); stroke-width: 1.5; stroke-dasharray: 3 2; }
svg .target-mark { fill: var(--target); }
svg .line { fill: none; stroke-width: 2.5; }
svg .series0 { stroke: var(--own); } svg .series1 { stroke: var(--stock); }
svg .series2 { stroke: var(--third); } svg .series3 { stroke: var(--fourth); }
svg .mark { fill: var(--paper); stroke-width: 2.5; }
.legend { color: var(--soft); font-size: .95rem; }
.key { display: inline-block; width: 1.4rem; height: .7rem; border-radius: 2px; }
.key + .key, .legend .key ~ .key, .key-target { margin-left: 1.1rem; }
@media (max-width: 40rem) {
  dl { grid-template-columns: 1fr; }
  dt { margin-top: .5rem; }
}
@media print {
  :root { color-scheme: light; }
  body { font-size: 10.5pt; } main { max-width: none; padding: 0; }
  h2 { break-after: avoid; } h3 { break-after: avoid; }
  tr, figure, .tiles div { break-inside: avoid; } .wide { overflow: visible; }
  thead { display: table-header-group; }
  .route, th, .tiles div, svg { print-color-adjust: exact; }
}
"""


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
