"""The words of tokens in the language of the text.

A model answers in the language that it reads: German texts get ⟦ORT_1⟧, French ones
⟦LIEU_1⟧. The language is recognised by its most frequent small words alone; a wrong
guess only costs a foreign word in brackets.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from curtilage.client.detection.wordlists import bag, words

ENGLISH: Final = "en"
_SMALL_WORDS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "en": words(
            "the and is are was of to in for with that what how my he she it on"
        ),
        "de": words(
            "der die das und ist nicht ein eine mit für auf ich zu den dem von im "
            "an am zum mein meine bitte einen"
        ),
        "fr": words(
            "le la les et est une des pour dans que qui avec du au je pas sur "
            "un mon ma à"
        ),
        "es": words("el los las y es una del para que con por se su la en no al un mi"),
        "it": words(
            "lo gli e è una di del della per che con non sono la il ha nel "
            "un mio mia al dal"
        ),
        "nl": words(
            "de het een en is niet van voor met dat op te zijn ik heeft bij "
            "mijn aan om naar"
        ),
        "pt": words(
            "o os as e é uma do da dos das para que com não em no na um ao meu minha"
        ),
    }
)
_LEAST: Final = 2  # small words; a single one may be part of a name
_LANGUAGES: Final = ("de", "fr", "es", "it", "nl", "pt")
# Words of ASCII capitals, as tokens have them. A missing kind (IBAN, EMAIL) has the
# same name in all languages, or does not occur in sentences.
_WORDINGS: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        kind: MappingProxyType(dict(zip(_LANGUAGES, row.split(), strict=True)))
        for kind, row in {
            "PERSON": "PERSON PERSONNE PERSONA PERSONA PERSOON PESSOA",
            "PLACE": "ORT LIEU LUGAR LUOGO PLAATS LUGAR",
            "ADDRESS": "ANSCHRIFT ADRESSE DIRECCION INDIRIZZO ADRES ENDERECO",
            "PHONE": "TELEFON TELEPHONE TELEFONO TELEFONO TELEFOON TELEFONE",
            "DATE": "DATUM DATE FECHA DATA DATUM DATA",
            "AGE": "ALTER AGE EDAD ETA LEEFTIJD IDADE",
            "ORGANIZATION": "EINRICHTUNG ORGANISATION ORGANIZACION ORGANIZZAZIONE "
            "ORGANISATIE ORGANIZACAO",
            "OCCUPATION": "BERUF METIER PROFESION PROFESSIONE BEROEP PROFISSAO",
            "ACCOUNT": "KONTO COMPTE CUENTA CONTO REKENING CONTA",
            "RECORD": "AKTE DOSSIER EXPEDIENTE CARTELLA DOSSIER PROCESSO",
        }.items()
    }
)


def language_of(texts: Iterable[str]) -> str | None:
    """Return the language of the first text that shows it, in ISO 639-1, or None.

    Only the first, so that a conversation keeps its tokens in every turn.
    """
    for text in texts:
        here = bag(text)
        counts = {each: len(here & small) for each, small in _SMALL_WORDS.items()}
        best = max(counts, key=counts.__getitem__)
        if counts[best] >= _LEAST and list(counts.values()).count(counts[best]) == 1:
            return best
    return None


def worded(kind: str, language: str) -> str:
    """Return the word of a kind's tokens; in English it is the kind itself."""
    return _WORDINGS.get(kind, {}).get(language, kind)
