"""Jinja2 templates of the reports; no other module of the command line uses Jinja2.

Template values are escaped, except charts, which escape their own texts. The colours
are those of Okabe and Ito, which people with colour blindness can distinguish; every
colour comes with a word or a shape. Text has a contrast of at least 7 to 1 with its
background, in both schemes.
"""

from importlib.resources import files
from typing import Final

from jinja2 import Environment, FunctionLoader, StrictUndefined

_TEMPLATES: Final = files("curtilage.cli.report") / "templates"


def rendered(template: str, **values: object) -> str:
    """Return a rendered template.

    Raises:
        UndefinedError: the template needs a value that was not given.
    """
    return _ENVIRONMENT.get_template(template).render(values)


_ENVIRONMENT: Final = Environment(
    loader=FunctionLoader(lambda name: (_TEMPLATES / name).read_text("utf-8")),
    # For all templates, whatever their suffix: a policy's texts are untrusted.
    autoescape=True,
    # A mistyped name in a template is an error: an empty place could hide a rule of the
    # policy.
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
