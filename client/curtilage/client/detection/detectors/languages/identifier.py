"""The language identifier: the only module that imports py3langid.

It is a naive Bayes classifier of byte sequences, without network access. Its model is
read from the installed package into memory, because the package's own reader unpacks it
into a temporary file, which the detectors' process may not write. Needs the extra
``pii``.
"""

import io
import lzma
from array import array
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final, Protocol, cast

from curtilage.client.detection.detectors.loading import loading
from curtilage.client.detection.wordlists import words

# Languages that people write in Latin letters. Without Latin, which has half of the
# terms of medicine, and Nigerian Pidgin, which is close to English: either of them
# would win sentences that are English.
LANGUAGES: Final = words("""
af az br bs ca cs cy da de en eo es et eu fi fo fr fy ga gd gl ha hr ht hu id ig is
it jv ku lb lg ln lt lv mg ms mt nl nn no oc om pl pt qu ro rw sk sl sn so sq st sv
sw tl tr uz vi xh yo zu
""")
_PACKAGE: Final = "py3langid"
_MODEL: Final = "data/model.npz.xz"
_TYPE_CODES: Final = {2: "H", 4: "I", 8: "L"}  # of ``array``, by the bytes per item


class Model(Protocol):
    """The part of the package that is used."""

    def rank(self, text: str) -> list[tuple[str, float]]:
        """Return every language with its log likelihood."""
        ...


class Identifier:
    """How well a text fits each of ``LANGUAGES``."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def scores(self, text: str) -> Mapping[str, float]:
        """Return the log likelihood of each language, up to a constant."""
        # In lower case: capitals are other bytes, and "ICH HABE" fits no language.
        return dict(self._model.rank(text.lower()))


def require_identifier() -> None:
    """Raise unless the model is installed; loads nothing.

    Raises:
        Exception: of any kind, if the package is missing or not as expected.
    """
    if not resources.files(_PACKAGE).joinpath(_MODEL).is_file():
        raise FileNotFoundError("the identifier's model is not installed")


@cache
def load_identifier() -> Identifier:
    """Load the model, once per process; takes half a second and about 80 MB.

    Raises:
        Exception: of any kind, if the package is missing or not as expected.
    """
    with loading():
        return _loaded()


def _loaded() -> Identifier:
    import numpy as np  # noqa: PLC0415 - needs the extra
    from py3langid import langid  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs]

    package: Any = langid
    packed = resources.files(_PACKAGE).joinpath(_MODEL).read_bytes()
    with np.load(io.BytesIO(lzma.decompress(packed)), allow_pickle=False) as model:
        labels: list[str] = model["classes"].tolist()
        kept = [at for at, label in enumerate(labels) if label in LANGUAGES]
        made = package.LanguageIdentifier(
            model["ptc"][:, kept].copy(),  # else the whole table is kept in memory
            model["pc"][kept].copy(),
            [labels[at] for at in kept],
            _array(model["nextmove"]),
            model["out_feat"].tolist(),
            tk_row=_array(model["nextmove_row"]),
        )
    return Identifier(cast("Model", made))


def _array(numbers: Any) -> "array[int]":  # noqa: ANN401 - an array of any integers
    # The classifier iterates over it, which is slow with numpy's own items.
    made: array[int] = array(_TYPE_CODES[numbers.dtype.itemsize])
    made.frombytes(numbers.tobytes())
    return made
