"""The command line's only door to Jinja2: pages and styles from files beside it.

Every value that a template shows is escaped, but for charts, which escape their own
texts. Colours are those of Okabe and Ito, which people who see fewer colours tell
apart; every colour comes with a word or a shape. Text has a contrast of at least 7
to 1 with what is behind it, in both schemes.
"""

from importlib.resources import files
from typing import Final

from jinja2 import Environment, FunctionLoader, StrictUndefined

_TEMPLATES: Final = files("curtilage.cli.report") / "templates"


def rendered(template: str, **values: object) -> str:
    """Return a template with its values.

    Raises:
        UndefinedError: the template wants a value that was not given.
    """
    return _ENVIRONMENT.get_template(template).render(values)


def _source(name: str) -> str:
    return (_TEMPLATES / name).read_text("utf-8")


_ENVIRONMENT: Final = Environment(
    loader=FunctionLoader(_source),
    # Of every template, whatever its name ends in: a policy's words are a stranger's.
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
