"""The demonstration's model: which one, where it runs, and what it cannot show."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from curtilage_dev.office import Lengths

SHORT: Final = Lengths(routine=12, hard=8)
LONG: Final = Lengths(routine=48, hard=160)
_ADDRESSES: Final = ("https://", "http://", "unix:")


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The model that answers locally, and in the demonstration's enclave.

    Attributes:
        file: a GGUF file, on both sides; None: the embedded model.
        sha256: its digest.
        address: of an on-premises server, which then answers locally in addition to the
            embedded model; the enclave runs the embedded one.
        name: the server's name for its model.
        ca: certificates (PEM) of the server's authorities; None: it needs none.
    """

    file: Path | None = None
    sha256: str = ""
    address: str = ""
    name: str = ""
    ca: Path | None = None

    @property
    def embedded(self) -> bool:
        """Whether the embedded model alone answers."""
        return self.file is None and not self.address

    @property
    def lengths(self) -> Lengths:
        """The maximum lengths of answers to the office questions."""
        return SHORT if self.embedded else LONG

    @property
    def stand_in(self) -> str:
        """The parts of the models that are stand-ins, as a sentence."""
        if self.file is not None:
            return f"the enclave runs the same file as this machine, {self.file.name}."
        if self.address:
            return (
                "the enclave runs the embedded model (135 M parameters), which is "
                "weaker than the server's and often wrong."
            )
        return (
            "the model is small (135 M parameters), the same on both sides, and often "
            "wrong."
        )

    @property
    def caveat(self) -> str:
        """The limits of the comparison."""
        prices = "Dollars are tokens at the profile's prices; nothing was paid. "
        if self.address:
            return (
                f"{prices}The local answers are the on-premises server's, or the "
                "embedded model's where the policy chose that; the enclave of this "
                "demo runs the embedded model, so that all-enclave is right less often "
                "than an enclave with a strong model would be."
            )
        same = (
            "Enclave and this machine run the same model here, so where a question is "
            "answered does not decide whether the answer is right. The policy takes "
            "the enclave's model for a strong one, and so sends what is hard."
        )
        if self.file is not None:
            return f"{prices}{same}"
        return (
            f"{prices}{same} The answers are the demonstration model's: no advice, and "
            f"cut at {self.lengths.hard} tokens, before most hard ones end."
        )


def model_of(given: str | None, *, name: str = "", ca: Path | None = None) -> Model:
    """Return the requested model.

    Args:
        given: a GGUF file, or the address of an on-premises server; None or empty: the
            embedded model.
        name: the server's name for its model.
        ca: the server's authorities (PEM).

    Raises:
        ValueError: it is neither, or something that it needs is missing.
    """
    if given and given.startswith(_ADDRESSES):
        if not name:
            raise ValueError("an address needs --model-name: what the server calls it")
        if given.startswith("https://") and ca is None:
            raise ValueError("an https address needs --model-ca: its authorities (PEM)")
        return Model(address=given, name=name, ca=ca)
    if name or ca is not None:
        raise ValueError("--model-name and --model-ca go with the address of a server")
    if not given:
        return Model()
    file = Path(given).expanduser().absolute()
    try:
        with file.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise ValueError(f"the model cannot be read: {error.strerror}") from error
    return Model(file=file, sha256=digest)
