"""Patterns of postal addresses, in the order of many countries, as data.

Nothing here runs; ``matcher`` runs it. Every repetition is bounded or
cannot overlap its neighbour, so that time grows with length only.
"""

from curtilage.client.detection.detectors.patterns.rule import (
    ANY_DIGIT,
    IS,
    PatternRule,
    listed,
)

# English words that end a street's name; the short ones want the blank before.
_LONG_WAYS = listed("""
street avenue boulevard lane drive court place square terrace parkway highway circle
crescent close grove alley trail plaza mews gardens road blvd pkwy turnpike esplanade
causeway ridge quay wharf expressway freeway
""")
_SHORT_WAYS = listed("""
st ave rd ln dr ct pl sq ter way hwy cir row sts tce cres
""")
_WAYS = "|".join((*_LONG_WAYS, *_SHORT_WAYS))
_GATE_WAYS = (*_LONG_WAYS, *(f"{blank}{way}" for way in _SHORT_WAYS for blank in " \t"))
# Words before a street's name, in the languages that put the number last.
_BEFORE = listed("""
via viale piazza piazzale corso vicolo rua avenida travessa calçada praça praca calle
carrer plaza paseo rue chemin allée impasse quai boulevard avenue ulica ulice aleja
aleje osiedle strada bulevardul jalan jln utca bulevar trg
""")
_SHORT_BEFORE = (r"ul\.", r"al\.", r"os\.", r"str\.", r"jl\.", r"av\.", r"avda\.",
                 r"p\.za", r"p\.le", r"bd\.")  # fmt: skip
# Endings of a street's name, of the languages that write it in one word.
_ENDINGS = listed("""
strasse straße gasse platz allee gatan vägen vagen straat laan gracht plein gade vej
vejen veien gata katu tie kuja polku
""")
_STATE = (
    r"(?:A[KLRZ]|C[AOT]|D[CE]|FL|GA|HI|I[ADLN]|K[SY]|LA|M[ADEINOST]|N[CDEHJMVY]|"
    r"O[HKR]|PA|PR|RI|S[CD]|T[NX]|UT|V[AIT]|W[AIVY]|A[AEP]|GU)"
)
_HOUSE = r"\d{1,5}[a-z]?(?:\s?[/\-]\s?\d{1,4}[a-z]?)?"
_ADDRESS = "identifier.direct.address"
_ZIP = "identifier.quasi.zip"

# Words that stand in no street's name in English.
_NO_STREET = (
    r"(?:an?|in|to|is|are|was|were|for|per|and|or|there|with|from|by|at|that|which|"
    r"hours?|minutes?|days?|copies|it|he|she|they)(?!\w)"
)

STREETS = (
    # 12 Old Mill Lane; 12B-14 Old Mill Lane
    PatternRule(
        id="street-number-first",
        data_class=_ADDRESS,
        regex=r"\d(?<![\w.$€£]\d)\d{0,4}[a-z]?(?:-\d{1,4})?,?"
        rf"(?:[ \t]{{1,3}}(?!{_NO_STREET})[\w.'\u2019\-]{{1,24}}){{1,4}}"
        rf"(?:[ \t]{{0,2}})[ \t](?:{_WAYS})(?!\w)\.?"
        r"(?! (?:f(?:ee|oo)t|inch|met[er]|yard|mile|kilomet|root|up|to|down|out|"
        r"off)\w{0,5})",
        score=70,
        gate=ANY_DIGIT,
        words=_GATE_WAYS,
    ),
    # 12 rue de la Paix; 3, Avenue Foch
    PatternRule(
        id="street-number-first-romance",
        data_class=_ADDRESS,
        regex=r"\d(?<![\w.$€£]\d)\d{0,3}(?:[ ]?(?:bis|ter|[a-d]))?,?[ \t]{1,2}"
        r"(?:rue|avenue|av\.|boulevard|bd\.?|chemin|impasse|quai|allée|allee|"
        r"place(?= de)|route(?= de))[ \t]{1,2}(?:d[eu]s?[ \t]|de la[ \t]|"
        r"[dl]['\u2019])?"
        r"[\w.'\u2019\-]{3,24}",
        score=65,
        gate=ANY_DIGIT,
        words=(
            "rue",
            "avenue",
            "av.",
            "boulevard",
            " bd",
            "\tbd",
            "chemin",
            "impasse",
            "quai",
            "place",
            "allée",
            "allee",
            "route",
        ),
    ),
    # Via Roma 12; ul. Długa 5/7; Calle Mayor, 3
    PatternRule(
        id="street-name-first",
        data_class=_ADDRESS,
        regex=rf"(?<!\w)(?:(?:{'|'.join((*_BEFORE, *_SHORT_BEFORE))})[ \t]{{1,2}}|"
        rf"c/[ ])"
        r"[^\W\d][\w.'\u2019\-]{0,23}(?:[ \t]{1,2}[^\W\d][\w.'\u2019\-]{0,23}){0,3}"
        rf"(?:,[ \t]?|[ \t]{{1,2}})(?:n[°ºr]?\.?[ ]?)?{_HOUSE}(?!\w|[.,]\d)",
        score=65,
        gate=ANY_DIGIT,
        words=(
            *_BEFORE,
            "ul.",
            "al.",
            "os.",
            "str.",
            "jl.",
            "c/ ",
            "av.",
            "avda.",
            "p.za",
            "p.le",
            "bd.",
        ),
    ),
    # Lindenstraße 7; Alter Markt-Gasse 3a; Storgatan 12
    PatternRule(
        id="street-one-word",
        data_class=_ADDRESS,
        regex=rf"(?:{'|'.join(_ENDINGS)}|str\.|weg|wg\.)(?<=\w\w\w\w[\w.])"
        rf"[ \t]{{1,2}}{_HOUSE}(?!\w|[.,:]\d)",
        score=65,
        gate=ANY_DIGIT,
        words=(*_ENDINGS, "str.", "weg", "wg."),
    ),
    # Lange Straße 7; Am Markt 3; Unter den Linden 77; Kossuth Lajos utca 12
    PatternRule(
        id="street-two-words",
        data_class=_ADDRESS,
        regex=r"(?<!\w)(?:[A-ZÄÖÜÁÉÍÓŐÚŰ][\w.\-]{2,20}[ ]){1,2}"
        r"(?:Straße|Strasse|Str\.|Weg|Platz|Allee|Gasse|utca|tér|körút|väg|gade|gate|"
        r"vei|Allé|Plads|Vænge|Stræde|Singel|Kade|Voorhout)[ ]{1,2}"
        rf"{_HOUSE}(?!\w|[.,:]\d)|"
        r"(?<!\w)(?:Am|An der|Auf dem|Im|In der|Unter den|Zum|Zur)[ ]"
        rf"(?:[A-ZÄÖÜ][\w\-]{{2,24}}[ ])?"
        rf"[A-ZÄÖÜ][\w\-]{{2,24}}[ ]{_HOUSE}(?!\w|[.,:]\d)",
        score=60,
        gate=ANY_DIGIT,
        cased=True,
        words=(
            "straße",
            "strasse",
            "str.",
            "weg",
            "platz",
            "allee",
            "gasse",
            "utca",
            "tér",
            "körút",
            "väg",
            "gade",
            "gate",
            "vei",
            "allé",
            "plads",
            "vænge",
            "stræde",
            "singel",
            "kade",
            "voorhout",
            "am ",
            "an der",
            "auf dem",
            "im ",
            "in der",
            "unter den",
            "zum",
            "zur",
        ),
    ),
    # Király u. 15.; Árpád fejedelem útja 45; Csabai kapu 39
    PatternRule(
        id="street-hungarian",
        data_class=_ADDRESS,
        regex=r"(?<!\w)[A-ZÁÉÍÓÖŐÚÜŰ][\w.\-]{2,24}(?: [\w.\-]{2,20})? "
        rf"(?:u\.|utca|útja|tere|köz|körút|kapu|sétány|sor) {_HOUSE}(?!\w|[.,:]\d)",
        score=60,
        gate=ANY_DIGIT,
        cased=True,
        words=(
            " u. ",
            "utca",
            "útja",
            "tere",
            "köz",
            "körút",
            "kapu",
            "sétány",
            " sor ",
        ),
    ),
    PatternRule(
        id="street-corner",
        data_class=_ADDRESS,
        regex=r"(?<!\w)(?:corner|intersection) of (?:the )?[A-Z\u00c0-\u017f0-9]"
        r"[^\n,;:!?]{2,40} (?:and|&) [A-Z\u00c0-\u017f0-9][\w\-]{2,30}",
        score=60,
        cased=True,
        words=("corner of", "intersection of"),
    ),
    # 東京都千代田区丸の内1-1; 北京市朝阳区建国路88号; 서울특별시 강남구 테헤란로 152
    PatternRule(
        id="street-east-asia",
        data_class=_ADDRESS,
        regex=r"[\u4e00-\u9fff\u3040-\u30ff]{1,8}[都道府県市区町村路街](?:[\u4e00-\u9fff"
        r"\u3040-\u30ff]{0,8})\d{1,4}(?:[号番丁-]|(?!\w))|"
        r"[\uac00-\ud7a3]{1,8}[로길동][ ]?\d{1,4}(?!\w)",
        score=65,
        gate="都道府県市区町村路街로길동",
    ),
    PatternRule(
        id="post-box",
        data_class=_ADDRESS,
        regex=r"(?<!\w)(?:(?:p\.?\s?o\.?\s?box|post office box|postfach|apartado(?: de"
        r" correos)?|bo[iî]te postale|casella postale|caixa postal|postbus|"
        r"postboks|skrytka pocztowa|private bag)\s{0,2}#?\d{1,7}|"
        r"(?:psc|unit|cmr)\s\d{2,5},?\s(?:box|bx)\s\d{1,6}|(?:apo|fpo|"
        r"dpo)\s(?:aa|ae|ap)\s\d{5})(?!\w)",
        score=80,
        gate=ANY_DIGIT,
        words=(
            "box",
            "postfach",
            "apartado",
            "postale",
            "postal",
            "postbus",
            "postboks",
            "pocztowa",
            "private bag",
            "psc",
            "unit",
            "cmr",
            "apo",
            "fpo",
            "dpo",
        ),
    ),
    PatternRule(
        id="unit-number",
        data_class=_ADDRESS,
        regex=r"(?<!\w)(?:apt|apartment|suite|ste|unit|"
        r"flat)\.?\s{1,2}#?\d{1,5}[a-z]?(?!\w)",
        score=50,
        gate=ANY_DIGIT,
        words=("apt", "apartment", "suite", "ste", "unit", "flat"),
    ),
    PatternRule(
        id="live-at",
        data_class=_ADDRESS,
        regex=r"(?<!\w)(?:(?:live|lives|living|reside[sd]?|residing|located) at|"
        r"(?:my|our|his|her|their|home|billing|shipping|mailing|postal|street)"
        r" address is|address:|adresse:|direcci[oó]n:|indirizzo:|endereço:|adres:|"
        r"ich wohne in der|j'habite au|vivo en la calle|abito in via)"
        r"\s{1,3}(\d{1,6}\s\S{2,40}|[^\n]{0,40}\d{2,6})",
        score=70,
        group=1,
        gate=ANY_DIGIT,
        words=(
            "live",
            "living",
            "resid",
            "located at",
            "address",
            "adres",
            "direcci",
            "indirizzo",
            "endereço",
            "ich wohne",
            "j'habite",
            "vivo en",
            "abito in",
        ),
    ),
)

POST_CODES = (
    PatternRule(
        id="state-and-zip",
        data_class=_ZIP,
        regex=rf"{_STATE}(?<!\w..),?\s{{1,3}}\d{{5}}(?:-\d{{4}})?(?![\w-])",
        score=80,
        digits=5,
        cased=True,
    ),
    PatternRule(
        id="zip-labelled",
        data_class=_ZIP,
        regex=rf"(?<!\w)(?:zip(?:[ -]?code)?|postal ?code|post ?code|postleitzahl|plz|"
        rf"code postal|c[oó]digo postal|cap|cep|postnummer|postcode|kod pocztowy|"
        rf"postinumero|ps[cč])"
        rf"{IS}((?=[A-Z0-9 \-]{{0,5}}\d)[A-Z0-9]{{2,6}}"
        r"(?:[ \-][A-Z0-9]{2,4})?)(?!\w)",
        score=70,
        group=1,
        gate=ANY_DIGIT,
        words=(
            "zip",
            "postal",
            "post code",
            "postcode",
            "postleitzahl",
            "plz",
            "cap",
            "cep",
            "postnummer",
            "pocztowy",
            "postinumero",
            "psc",
            "psč",
        ),
    ),
    # somebody "from 62704", and no sum
    PatternRule(
        id="zip-from",
        data_class=_ZIP,
        regex=r"(?<!\w)(?:from|lives? in|living in|resid\w{2,4} in) (\d{5})"
        r"(?=[,.;:!?)]?(?:\s|$))(?! (?:to|euros?|dollars?|people)(?!\w))",
        score=60,
        group=1,
        digits=5,
        words=("from", "live", "living in", "resid"),
    ),
    PatternRule(
        id="uk-postcode",
        data_class=_ZIP,
        regex=r"(?<!\w)(?:[A-PR-UWYZ][A-HK-Y]?\d[A-Z\d]?\s\d[ABD-HJLNP-UW-Z]{2}|"
        r"[ABCEGHJ-NPRSTVXY]\d[A-Z]\s\d[A-Z]\d)(?!\w)",
        score=60,
        mixed=True,
        cased=True,
    ),
    # 10115 Berlin; D-10115 Berlin; 75001 Paris; 00-950 Warszawa; 1012 AB Amsterdam
    PatternRule(
        id="post-code-and-place",
        data_class=_ZIP,
        regex=r"(?<![\w.,$€£/\-])(?:(?:D|A|CH|F|I|B|NL|DK|S|N|FI|L)-\d{4,5}|"
        r"\d{2}-\d{3}|\d{3}\s\d{2}|\d{4}\s[A-Z]{2}|\d{4}-\d{3})\s[A-ZÄÖÜŁŚŻÅØ]"
        r"[a-zà-žß]{2,24}(?!\w)",
        score=60,
        digits=4,
        cased=True,
    ),
)

ADDRESSES = (*STREETS, *POST_CODES)
