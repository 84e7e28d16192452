import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.client.detection.detectors.told_numbers import replaced


def shown(text: str) -> str:
    return replaced(text, lambda digits: f"<{digits}>")


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("null eins sieben zwei, vier fünf sechs, acht acht neun eins", "01724568891"),
        (
            "null einhundertsiebzig, vierhundertzwölf, achtundneunzig, elf",
            "01704129811",
        ),
        ("vier fünf drei zwei, drei mal die fünf, vier, doppel sieben", "4532555477"),
        ("vier eins eins eins, dann zwölf mal die eins", "4111" + 12 * "1"),
        ("doppelnull vier neun fuenf zwo dreissig", "004952" + "30"),
        ("zéro six, douze, trente-quatre, cinquante-six", "06123456"),
        (
            "soixante et onze quatre-vingt-dix soixante-dix-huit deux cent dix",
            "719078210",
        ),
        (
            "quatre mille neuf cent soixante-dix, deux cent dix, trois cent douze",
            "4970210312",
        ),
        ("deux cent dix quarante-cinq douze trois fois le sept", "2104512777"),
        ("seiscientos doce trescientos cuarenta y cinco setenta y ocho", "61234578"),
        ("seis doble cinco veintiuno cero tres noventa y nueve", "65521" + "0399"),
        ("trecentoquarantasette centoventitré quarantacinque", "34712345"),
        ("tre due otto trentuno ventidue centottanta", "3283122180"),
        ("nul zes, dubbel vier, drie keer de twee, negen, een", "064422291"),
        ("tweehonderdtwaalf vierentwintig achtendertig tweeëntwintig", "212243822"),
        ("novecentos e doze trezentos e quarenta e cinco vinte e um", "91234521"),
        ("onze nove oitenta e sete meia cinco", "1198765"),
        ("viertausendzwei, dreizehn, vierzig, sieben", "400213407"),
        ("trzy cztery pięć sześć siedem", "34567"),
        ("06 zwölf vierunddreißig 56 achtundsiebzig", "0612345678"),
    ],
)
def test_a_row_of_spelled_out_numbers_is_one_number(text: str, digits: str) -> None:
    assert shown(text) == f"<{digits}>"


@pytest.mark.parametrize(
    "text",
    [
        # Counted.
        "eins zwei drei vier fünf sechs sieben acht neun zehn",
        "cinq, dix, quinze, vingt, vingt-cinq",
        "zehn zwanzig dreißig vierzig",
        "compte jusqu'à dix : un, deux, trois, quatre, cinq, six, sept, huit",
        # Bought, cooked, drawn.
        "cent, deux cents, cinq cents",
        "de deux cent dix à trois cent quarante euros",
        "trescientos cincuenta mil euros",
        "deux oeufs, trois cents grammes de farine, quatre pommes",
        "due uova, trecento grammi di farina",
        # Words of another language.
        "fire to sex due",
        "une, dos, tres",
        # On another line: a list.
        "eins\nzwei\nvier\nfünf\nacht\nzwei\nvier",
    ],
)
def test_numbers_that_are_nobodys_stay_words(text: str) -> None:
    assert shown(text) == text


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("vier neun Leerzeichen drei drei zwei neue Zeile sieben acht", "4933278"),
        ("un trois à la ligne neuf quatre trait d'union huit deux six", "1394826"),
        ("uno tres nueva línea nueve cuatro guion ocho dos seis", "1394826"),
        ("uno tre a capo nove quattro trattino otto due sei", "1394826"),
        ("een drie nieuwe regel negen vier koppelteken acht twee zes", "1394826"),
        ("um três nova linha nove quatro hífen oito dois seis", "1394826"),
        # A word that no list has, between two numbers and two more.
        ("vier neun Girlande drei drei Girlande sieben acht eins", "49337" + "81"),
        ("vier doppel neun Girlande drei dreimal acht Girlande zwo eins", "499388821"),
    ],
)
def test_a_row_goes_on_behind_a_pause(text: str, digits: str) -> None:
    assert shown(text) == f"<{digits}>"


@pytest.mark.parametrize(
    "text",
    [
        "drei Eier zwei Tassen Mehl vier Löffel Zucker fünf Minuten acht Teller",
        "deux chats trois chiens quatre vaches cinq poules huit canards",
    ],
)
def test_one_number_before_each_thing_is_no_row(text: str) -> None:
    assert shown(text) == text


def test_text_around_a_row_is_kept() -> None:
    spoken = "Ruf an: null sechs zwölf, dann achtunddreißig, neun. Danke, und eins!"
    assert shown(spoken) == "Ruf an: <0612389>. Danke, und eins!"


def test_a_row_does_not_go_on_in_the_next_text() -> None:
    assert "\x1e" in shown("null sechs zwölf zwanzig vier\x1ezwei null eins eins eins")


@given(st.text(st.sampled_from("null eins zwei und mille cent dix-x3,. "), max_size=80))
def test_any_text_is_taken(text: str) -> None:
    assert isinstance(shown(text), str)
