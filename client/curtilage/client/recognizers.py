"""Patterns of identifiers, as data: contact, government, dates, attributes.

What Presidio lacks, misses or does in quadratic time (classifier design,
hazards F2 to F8). Nothing here runs; ``scan`` runs it. Every repetition is
bounded or cannot overlap its neighbour, so that time grows with length only.
"""

from curtilage.client import checks
from curtilage.client.pattern_rule import IS, PatternRule, labelled
from curtilage.client.regulated import FINANCE, HEALTH, LEGAL

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|"
    r"aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
_DAY = r"(?:[12]\d|3[01]|0?[1-9])(?:st|nd|rd|th)?"
_YEAR = r"(?:19|20)\d\d"
_NUMERIC_DATE = r"\d{1,4}[/.\-]\d{1,2}[/.\-]\d{1,4}"
_ANY_DATE = (
    rf"(?:{_MONTH} {{1,3}}{_DAY}(?:,? {{1,3}}{_YEAR})?|"
    rf"{_DAY}(?: of)? {{1,3}}{_MONTH}(?:,? {{1,3}}{_YEAR})?|{_NUMERIC_DATE}|{_YEAR})"
)
# Near this word nine digits are a social security number, however written.
SSN_LABEL = r"(?<![^\W_])(?:ssn|soc(?:ial)?[\W_]{0,3}sec(?:urity)?)(?![^\W\d_])"
SSN_REACH = 30  # characters
_NINE_DIGITS = r"(?<!\d)\d(?:(?:\W|_){0,6}\d){8}(?!\d)"
_STREET = (
    r"(?:street|st|avenue|ave|road|rd|boulevard|blvd|lane|ln|drive|dr|court|ct|"
    r"place|pl|square|sq|terrace|ter|way|parkway|pkwy|highway|hwy|circle|cir|"
    r"crescent|close|grove|alley|trail|plaza|mews|row|gardens)"
)
_STATE = (
    r"(?:A[KLRZ]|C[AOT]|D[CE]|FL|GA|HI|I[ADLN]|K[SY]|LA|M[ADEINOST]|N[CDEHJMVY]|"
    r"O[HKR]|PA|RI|S[CD]|T[NX]|UT|V[AT]|W[AIVY])"
)

CONTACT = (
    # No suffix list: alice@hospital.local is an address too (F5, F6).
    PatternRule(
        id="email",
        data_class="identifier.direct.email",
        regex=r"(?<![\w.+%'\-])[\w.+%'\-]{1,64}@"
        r"(?:[\w\-]{1,63}(?:\.[\w\-]{1,63}){1,6}|[\w\-]{2,63})",
        score=90,
        gate="@",
    ),
    PatternRule(
        id="email-bracketed-host",
        data_class="identifier.direct.email",
        regex=r"(?<![\w.+%'\-])[\w.+%'\-]{1,64}@\[[0-9a-f.:]{3,45}\]",
        score=90,
        gate="@",
    ),
    labelled(
        "phone-labelled",
        "identifier.direct.phone",
        r"tel(?:ephone)?|phone|cell(?:phone)?|mobile|"
        r"call(?: me)?(?: back)?(?: at| on)?|"
        r"whatsapp|text me(?: at| on)?|reach me(?: at| on)?|sms|landline",
        r"\+?\(?\d(?:[\s().\-/]{0,3}\d){5,14}",
    ),
    labelled(
        "fax",
        "identifier.direct.fax",
        r"fax",
        r"\+?\(?\d(?:[\s().\-/]{0,3}\d){5,14}",
    ),
    PatternRule(
        id="phone-international",
        data_class="identifier.direct.phone",
        regex=r"(?<![\w+])(?:\+|00)[1-9]\d{0,2}(?:[\s().\-/]{0,3}\d){6,12}(?!\w)",
        score=70,
        gate="0",
    ),
    PatternRule(
        id="phone-grouped",
        data_class="identifier.direct.phone",
        regex=r"(?<![\w.\-])\(?\d{3}\)?[\s.\-]{1,2}\d{3}[\s.\-]\d{4}(?![\w\-])",
        score=60,
        gate="0",
    ),
    PatternRule(
        id="street-number-first",
        data_class="identifier.direct.address",
        regex=r"(?<![\w.$€£])\d{1,5}[a-z]?,?(?:[ \t]+[\w.'\-]{1,24}){1,4}"
        rf"[ \t]+{_STREET}(?!\w)\.?",
        score=70,
        gate="0",
    ),
    PatternRule(
        id="street-name-first",
        data_class="identifier.direct.address",
        regex=r"(?<!\w)(?:(?:via|viale|piazza|rua|avenida|calle|carrer|rue|chemin|"
        r"ul\.|ulica|ulice|jalan|jl\.)(?:[ \t]+[\w.'\-]{1,24}){1,4},?[ \t]+\d{1,5}|"
        r"\w{2,30}(?:stra(?:ß|ss)e|str\.|gasse|weg|platz|allee|gatan|vägen|straat|"
        r"laan|gade|vej|veien|gata|katu|utca|út)[ \t]+\d{1,5})(?!\w)",
        score=65,
        gate="0",
    ),
    PatternRule(
        id="post-box",
        data_class="identifier.direct.address",
        regex=r"(?<!\w)(?:(?:p\.?\s?o\.?\s?box|postfach|apartado)\s{0,2}#?\d{1,7}|"
        r"(?:psc|unit|cmr)\s\d{2,5},?\s(?:box|bx)\s\d{1,6}|(?:apo|fpo|"
        r"dpo)\s(?:aa|ae|ap)\s\d{5})",
        score=80,
        gate="0",
    ),
    PatternRule(
        id="unit-number",
        data_class="identifier.direct.address",
        regex=r"(?<!\w)(?:apt|apartment|suite|ste|unit|"
        r"flat)\.?\s{1,2}#?\d{1,5}[a-z]?(?!\w)",
        score=50,
        gate="0",
    ),
    PatternRule(
        id="live-at",
        data_class="identifier.direct.address",
        regex=r"(?<!\w)(?:(?:live|lives|living|reside[sd]?|residing|located) at|"
        r"(?:my|our|his|her|their|home|billing|shipping|mailing|postal|street)"
        r" address is|address:)\s{1,3}(\d{1,6}\s\S{2,40}|[^\n]{0,40}\d{2,6})",
        score=70,
        group=1,
        gate="0",
    ),
    PatternRule(
        id="state-and-zip",
        data_class="identifier.quasi.zip",
        regex=rf"(?<!\w){_STATE},?\s{{1,3}}\d{{5}}(?:-\d{{4}})?(?![\w-])",
        score=80,
        gate="0",
        cased=True,
    ),
    PatternRule(
        id="zip-labelled",
        data_class="identifier.quasi.zip",
        regex=rf"(?<!\w)(?:zip|postal code|post ?code|plz|"
        rf"cap){IS}([A-Z0-9]{{2,5}}(?:[ \-][A-Z0-9]{{2,4}})?)(?!\w)",
        score=70,
        group=1,
        gate="0",
    ),
    PatternRule(
        id="uk-postcode",
        data_class="identifier.quasi.zip",
        regex=r"(?<!\w)(?:[A-PR-UWYZ][A-HK-Y]?\d[A-Z\d]?\s\d[ABD-HJLNP-UW-Z]{2}|"
        r"[ABCEGHJ-NPRSTVXY]\d[A-Z]\s\d[A-Z]\d)(?!\w)",
        score=60,
        gate="0",
        cased=True,
    ),
    PatternRule(
        id="ipv4",
        data_class="identifier.direct.ip",
        regex=r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w]|\.\d)",
        score=75,
        check=checks.ip_address,
        required=True,
        gate=".",
    ),
    PatternRule(
        id="ipv6",
        data_class="identifier.direct.ip",
        regex=r"(?<![\w:.])(?=[0-9a-f]{0,4}:[0-9a-f:]{0,8}[0-9a-f])[0-9a-f:]{3,39}(?![\w:])",
        score=75,
        check=checks.ip_address,
        required=True,
        gate=":",
    ),
    PatternRule(
        id="mac",
        data_class="identifier.direct.mac",
        regex=r"(?<![\w:\-])(?:[0-9a-f]{2}([:\-])(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}|"
        r"(?:[0-9a-f]{4}\.){2}[0-9a-f]{4})(?![\w:\-])",
        score=85,
        gate=":-.",
    ),
    PatternRule(
        id="username",
        data_class="identifier.direct.username",
        regex=r"(?<!\w)(?:user ?name|user ?id|login|handle|screen name)(?: is|"
        r":|=| was)\s{0,2}[\"'@]?"
        r"((?!(?:not|a|an|the|in|my|wrong|incorrect|invalid|required|"
        r"already|taken|being|"
        r"too|also|never|no|blocked|locked|disabled|and)\b)[\w.\-]{2,40})",
        score=60,
        group=1,
    ),
    PatternRule(
        id="handle",
        data_class="identifier.direct.username",
        regex=r"(?<![\w@/.])@[A-Za-z][\w]{2,30}(?:\d|_)\w{0,20}(?![\w.(])",
        score=45,
        gate="@",
    ),
    PatternRule(
        id="profile-link",
        data_class="identifier.direct.url_personal",
        regex=r"(?<!\w)(?:linkedin\.com/in|facebook\.com|fb\.com|instagram\.com|"
        r"twitter\.com|x\.com|tiktok\.com/@|t\.me|venmo\.com|paypal\.me|wa\.me|"
        r"reddit\.com/u(?:ser)?)/?[\w.\-@]{2,40}",
        score=60,
        gate=".",
    ),
    PatternRule(
        id="link",
        data_class="identifier.quasi.url",
        regex=r"(?<!\w)(?:https?://|www\.)[^\s<>\"']{3,2000}",
        score=60,
        gate=".",
    ),
    labelled(
        "imei",
        "identifier.direct.device",
        r"imei|meid|udid|serial(?: number)?|device id|s/n",
    ),
    labelled(
        "plate",
        "identifier.direct.vehicle",
        r"(?:licen[cs]e|number|registration) plates?|reg(?:istration)?(?: number)?",
        r"(?=[A-Z0-9\- ]{0,9}\d)[A-Z0-9](?:[A-Z0-9\- ]{1,8})[A-Z0-9]",
        score=60,
    ),
    PatternRule(
        id="vin",
        data_class="identifier.direct.vehicle",
        regex=r"(?<!\w)[A-HJ-NPR-Z0-9]{17}(?!\w)",
        score=90,
        check=checks.vin,
        required=True,
        gate="0",
    ),
)

GOVERNMENT = (
    PatternRule(
        id="ssn-grouped",
        data_class="identifier.direct.gov_id.us_ssn",
        regex=r"(?<![\w\-])\d{3}([\-. /])\d{2}\1\d{4}(?![\w\-])",
        score=85,
        check=checks.ssn,
        required=True,
        gate="0",
    ),
    # As a list or over lines: "ssn": ["536", "22", "1234"]. Issued or not.
    PatternRule(
        id="ssn-spread",
        data_class="identifier.direct.gov_id.us_ssn",
        regex=rf"(?:{SSN_LABEL})[^\d]{{0,{SSN_REACH}}}({_NINE_DIGITS})",
        score=90,
        group=1,
        gate="0",
    ),
    PatternRule(
        id="ssn-spread-before",
        data_class="identifier.direct.gov_id.us_ssn",
        regex=rf"({_NINE_DIGITS})[^\d]{{0,{SSN_REACH}}}(?:{SSN_LABEL})",
        score=90,
        group=1,
        gate="0",
    ),
    PatternRule(
        id="ssn-labelled",
        data_class="identifier.direct.gov_id.us_ssn",
        regex=r"(?<!\w)(?:ssn|ss\s?#|social(?: security)?(?: number| no\.?|"
        r" num)?|soc sec)"
        rf"{IS}(\d(?:[^\w\n]{{0,3}}\d){{3,8}})",
        score=95,
        group=1,
        gate="0",
    ),
    labelled(
        "itin",
        "identifier.direct.gov_id.us_itin",
        r"itin",
        r"9\d\d[\s\-]?\d\d[\s\-]?\d{4}",
    ),
    PatternRule(
        id="nino",
        data_class="identifier.direct.gov_id.uk_nino",
        regex=r"(?<!\w)(?![dfiquv])[a-z](?![dfiquvo])[a-z]\s?\d{2}\s?\d{2}\s?\d{2}\s?[a-d](?!\w)",
        score=85,
        gate="0",
    ),
    labelled("passport", "identifier.direct.passport", r"passport"),
    labelled(
        "driving-licence",
        "identifier.direct.licence",
        r"driv(?:er'?s?|ing) licen[cs]e|licen[cs]e(?: number| no)|"
        r"dl(?: number| no|#|:)|permit number",
    ),
    labelled(
        "official-number",
        "identifier.direct.gov_id.other",
        r"(?:national|citizen|personal|resident|alien|voter|identity|tax(?:payer)?)"
        r"(?: (?:id|identification|identity|registration|insurance|"
        r"card))?(?: (?:number|no|card|code))?|"
        r"(?:nhs|nino|tin|ein|aadhaar|pesel|cpf|curp|bsn|nif|nie|"
        r"codice fiscale|steuer-?id|"
        r"visa|green card|green-card|uscis|i-94)(?: number| no)?",
    ),
    PatternRule(
        id="in-pan",
        data_class="identifier.direct.gov_id.in_pan",
        regex=r"(?<!\w)[A-Z]{3}[ABCFGHJLPT][A-Z]\d{4}[A-Z](?!\w)",
        score=60,
        gate="0",
    ),
    PatternRule(
        id="fiscal-code",
        data_class="identifier.direct.gov_id.it_cf",
        regex=r"(?<!\w)[A-Z]{6}\d{2}[A-EHLMPR-T]\d{2}[A-Z]\d{3}[A-Z](?!\w)",
        score=85,
        gate="0",
    ),
    PatternRule(
        id="nir",
        data_class="identifier.direct.gov_id.fr_nir",
        regex=r"(?<!\w)[12]\s?\d\d\s?(?:0\d|1[0-2]|[2-9]\d)\s?(?:\d\d|"
        r"2[ab])\s?\d{3}\s?\d{3}\s?\d\d(?!\w)",
        score=60,
        gate="0",
    ),
)

QUASI = (
    PatternRule(
        id="dob",
        data_class="identifier.quasi.dob",
        regex=rf"(?<!\w)(?:d\.?o\.?b\.?|date of birth|birth ?(?:date|day)|"
        rf"born(?: on| in)?){IS}({_ANY_DATE})(?!\w)",
        score=90,
        group=1,
        gate="0",
    ),
    PatternRule(
        id="textual-date",
        data_class="identifier.quasi.date",
        regex=rf"(?<!\w)(?:{_MONTH} {{1,3}}{_DAY}(?:,? {{1,3}}{_YEAR})?|"
        rf"{_DAY}(?: of)? {{1,3}}{_MONTH}(?:,? {{1,3}}{_YEAR})?)(?!\w)",
        score=60,
        gate="0",
    ),
    PatternRule(
        id="numeric-date",
        data_class="identifier.quasi.date",
        regex=r"(?<![\w/.\-])(?:\d{1,2}([/.\-])\d{1,2}\1(?:\d{2}|\d{4})|"
        r"\d{4}([/.\-])\d{1,2}\2\d{1,2})(?![\w/]|[.\-]\d)",
        score=60,
        gate="0",
    ),
    PatternRule(
        id="age",
        data_class="identifier.quasi.age",
        regex=r"(?<!\w)(?:age[ds]?:?\s\d{1,2}|\d{1,2}[ \-]?(?:years?|yrs?|"
        r"months?|weeks?)[ \-]old|"
        r"\d{1,2}\s?y/?o|(?:i'?m|i am|he is|she is|he's|she's|turn(?:ed|"
        r"ing)?) \d{1,2})(?![\w%]|[.,:]\d)",
        score=60,
        gate="0",
    ),
    PatternRule(
        id="age-90",
        data_class="identifier.quasi.age90",
        regex=r"(?<!\w)(?:(?:age[ds]?:?|i'?m|i am|he is|she is|turn(?:ed|"
        r"ing)?)\s(?:9\d|1[01]\d)|(?:9\d|1[01]\d)[ \-]?(?:years?|"
        r"yrs?)[ \-]old)(?!\w)",
        score=75,
        gate="0",
    ),
    PatternRule(
        id="home-city",
        data_class="identifier.quasi.city",
        regex=r"(?<!\w)(?:live[sd]?|living|grew up|born|based|reside[sd]?|"
        r"i'?m from|i am from|moved)"
        r"\s(?:in|near|to|at)?\s?([A-Z][\w'\-]{2,30})",
        score=55,
        group=1,
    ),
    PatternRule(
        id="employer",
        data_class="identifier.quasi.employer",
        regex=r"(?<!\w)(?:i|he|she|we|wife|husband|son|daughter|"
        r"who)\s(?:currently )?(?:work(?:s|ed|ing)?|am employed|"
        r"is employed|intern(?:ed)?)\s(?:at|for)\s(?!(?:home|night|"
        r"least|the|a|an|my|free|all|now|me|you)\b)([\w&.'\-]{2,40})",
        score=55,
        group=1,
    ),
    PatternRule(
        id="occupation",
        data_class="identifier.quasi.occupation",
        regex=r"(?<!\w)(?:i work as|my job is|i am employed as|by profession|"
        r"occupation:)\s(?:an?\s)?(\w{3,30})",
        score=55,
        group=1,
    ),
)

PATTERNS = (*CONTACT, *GOVERNMENT, *FINANCE, *HEALTH, *QUASI, *LEGAL)

NUMBER_RUN = r"\d(?:(?:[^\w\n]|_){0,3}\d){6,}"
# What a long run may be instead: a grouped amount, a span of years, a decimal
# with a short integer part. Nothing else is known well enough.
HARMLESS_RUN = (
    r"\d{1,3}(?:,\d{3}){2,6}(?:\.\d{1,4})?|\d{1,3},\d{3}\.\d{2}|"
    r"(?:19|20)\d\d ?[-\u2013\u2014/] ?(?:19|20)\d\d|\d{1,2}\.\d{1,16}"
)
