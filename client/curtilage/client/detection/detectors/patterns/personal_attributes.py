"""Patterns of a person's attributes other than a name, as data.

Dates, birth, age, town, employer, occupation, and words for biometric data. This module
runs nothing; ``matcher`` does. Every repetition is bounded or cannot overlap its
neighbour, so that the time is linear in the length.
"""

from curtilage.client.detection.detectors.patterns.rule import (
    ANY_DIGIT,
    IS,
    PatternRule,
    listed,
)

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|"
    r"aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?"
)
# German, French, Spanish, Italian, Portuguese, Dutch, Polish, Swedish, Danish, Czech
# and Finnish; also the German ones that are English too, since German has a dot: 3.
# April.
_FOREIGN_MONTHS = listed("""
januar jänner februar märz marts maj mai juni juli oktober dezember
april august september november
janvier février fevrier mars
avril juin juillet août aout septembre octobre novembre décembre decembre enero
febrero marzo abril mayo junio julio agosto septiembre setiembre octubre noviembre
diciembre gennaio febbraio aprile maggio giugno luglio settembre ottobre dicembre
janeiro fevereiro março maio junho julho setembro outubro dezembro januari februari
maart mei augustus augusti stycznia lutego marca kwietnia maja czerwca lipca sierpnia
września października listopada grudnia ledna února března dubna května června
července srpna září října listopadu prosince tammikuuta helmikuuta maaliskuuta
huhtikuuta toukokuuta kesäkuuta heinäkuuta elokuuta syyskuuta lokakuuta marraskuuta
joulukuuta
""")
# Abbreviated ones; some are words of other languages ("12 out of 20", "3 set points"),
# so they count only next to a year.
_CUT_MONTHS = listed("""
jan jän janv ene gen feb febr févr fevr fév fev mrz mär mrt mar apr avr abr mai mag
jun giu jul juil lug aug août ago sept sep set okt oct ott out nov dez dec déc dic
""")
_DAY = r"(?:[12]\d|3[01]|0?[1-9])(?:st|nd|rd|th|er)?"
_DAY_WORD = (
    r"(?:premier|primero|primo|primeiro|ersten|zweiten|dritten|vierten|fünften|"
    r"sechsten|siebten|achten|neunten|zehnten|elften|zwölften)"
)
_YEAR = r"(?:19|20)\d\d"
_NUMERIC_DATE = (
    r"\d{1,4}[/.\-]\s?\d{1,2}[/.\-]\s?\d{1,4}|\d{1,2}/\d{1,2}\s(?:19|20)\d\d"
)
_SHORT_YEAR = rf"(?:{_YEAR}|['\u2019]\d\d)"
_OF = r"(?: del?)?[ \-/]{1,3}"
_FOREIGN_DAY = (
    rf"(?:{_DAY}[.º°]?|{_DAY_WORD}){_OF}(?:(?:{'|'.join(_FOREIGN_MONTHS)})|"
    rf"(?:{'|'.join(_CUT_MONTHS)})\.?(?=,?{_OF}{_SHORT_YEAR}))"
)
_FOREIGN_DATE = rf"{_FOREIGN_DAY}(?:,?{_OF}{_SHORT_YEAR})?"
_WHOLE_DATE = (
    rf"{_FOREIGN_DAY},?{_OF}{_SHORT_YEAR}|{_MONTH} {{1,3}}{_DAY},? "
    rf"{{1,3}}{_SHORT_YEAR}|{_DAY} {{1,3}}{_MONTH},? {{1,3}}{_SHORT_YEAR}|"
    r"\d{1,2}[/.\-]\d{1,2}[/.\-](?:19|20)\d\d|(?:19|20)\d\d[/.\-]\d{1,2}[/.\-]\d{1,2}"
)
# After a day whose year is omitted here: a person born then is not a patient.
_LONG_AGO = r"(?!,?(?: del?)? {1,3}1[0-8]\d\d(?!\d))"
_TEXTUAL_DATE = (
    rf"{_MONTH} {{1,3}}(?:the )?{_DAY}(?:,? {{1,3}}{_SHORT_YEAR})?|"
    rf"{_DAY}(?: of)? {{1,3}}{_MONTH}(?:,? {{1,3}}{_SHORT_YEAR})?"
)
_DATED = rf"\d{{1,2}}[ \-]{_MONTH}[ \-](?:{_YEAR}|\d\d)"
# 180577, 18 05 1977: only in a statement of birth.
_RUN_DATE = r"(?:[0-2]\d|3[01]) ?(?:0\d|1[0-2]) ?(?:19|20)?\d\d(?!\d)"
_ANY_DATE = rf"(?:{_FOREIGN_DATE}|{_DATED}|{_TEXTUAL_DATE}|{_NUMERIC_DATE}|{_YEAR})"
_MONTH_WORDS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct",
                "nov", "dec")  # fmt: skip
_BORN = (
    r"dob|d\.o\.b\.?|d o b|d\. o\. b\.|date of birth|birth ?(?:date|day)|b-?day|"
    r"(?:was |were )?born(?: on| in|:)?|née? (?:le|en|un)|né\(e\) le|ne le|"
    r"venue?s? au monde (?:le|en)|date[ _](?:de[ _])?naiss(?:ance|\.)?|naissance|"
    r"date_of_birth|birth_?date|"
    r"date de naissance|ddn|geb\.?[ -]?dat(?:um|\.)?|geb(?:oren|\.)?(?: am)?|"
    r"geburts(?:datum|tag)|geboren bin ich(?: am)?|"
    r"(?:bin|ist|war) (?:ein )?jahrgang|jg\.|"
    r"(?:fecha|f\.) ?(?:de )?nac(?:imiento|\.)?|fn:|nac(?:id[oa]|[ií]|ió)(?: el(?: "
    r"día)?| en)?|data di nascita|nat[oa] il|"
    r"data (?:de )?nasc(?:imento|\.)?|dn:|nasc(?:id[oa]|i|eu)(?: em| a| no dia)?|"
    r"geboortedatum|geboren op|"
    r"data urodzenia|urodzon[ya]|ur\.|född(?: den)?|födelsedatum|født(?: den)?|"
    r"fødselsdato|syntymäaika|syntynyt|datum narození|narozena?"
)
_BORN_WORDS = (
    "dob", "d.o.b", "d o b", "d. o. b", "birth", "bday", "b-day", "born",
    "naissance", "né le", "né en", "née le", "née en", "né(e)", "ne le", "ddn", "geb",
    "jahrgang", "jg.", "venu", "naiss", "né un", "née un",
    "nacimiento", "nac", "fn:", "nascita", "nato il", "nata il",
    "nasc", "dn:",
    "urodz", "ur.", "född", "födelse", "født", "fødsel", "syntym", "syntyn", "naroz",
)  # fmt: skip
_SHORT_DATE = r"\d{1,2}[./]\d{1,2}[./]\d\d"
_WORDED_DE = (
    rf"\w{{3,24}}ten (?:{'|'.join(_FOREIGN_MONTHS)}) "
    r"(?:neunzehnhundert|zweitausend)\w{0,40}"
)
_UNIT = r"(?:years?|yrs?|yr|months?|weeks?|wks?)"
_OLD = rf"[ \-]?{_UNIT}\.?[ \-](?:of[ \-]age|old|young)"
# "im" is German too: im 3. Stock.
_I_AM = (
    r"(?:i'm|im(?! \d{1,2}\. (?:stock|quartal|jahr|semester|monat|trimester|lebens|"
    r"kapitel|"
    r"bezirk|teil|akt|spiel|satz|ober))|ich bin|(?:er|sie) (?:ist|wird)|i am|he is|"
    r"she is|he's|she's|they are|who is|turn(?:ed|ing|s)?|"
    r"when (?:i|he|she|they) (?:was|were))"
)
_ABOUT = r"(?:about |almost |nearly |only |now |just |over )?"
_AGE = r"(?:age[ds]?(?: of| is)?:?|alter:?|[aâ]ge:?|edad:?|età:?|idade:?|leeftijd:?)"
_YEARS_ABROAD = (
    r"(?:[ ](?:jahre(?: alt)?|ans|años|anni|anos|jaar(?: oud)?|år|vuotta)|"
    r"[ \-]?jährig\w{0,2}|[ \-]jarige?|enne| j\.(?=[,;)])|(?<=de \d\d) a\.|"
    r"(?<=mit \d\d) jahren|(?<=von \d\d) jahren)"
)
# Numbers of years that are not an age: past or future, and durations.
_SINCE = "".join(
    rf"(?<!\b{word} \d)"
    for word in (
        *("vor", "seit", "nach", "in", "über", "während", "gilt", "besteht", "dauerte"),
        *("il y a", "depuis", "pendant", "dans", "durant", "après", "garantie de"),
        *("hace", "durante", "tras", "dentro de", "garantía de", "desde hace"),
        *("da", "dopo", "tra", "fra", "per", "entro", "garanzia di", "guerra dei"),
        *("há", "após", "daqui a", "garantia de", "over", "sinds", "na", "bestaat"),
    )
)
_LASTED = (
    r"(?! (?:de (?:garant|hist[oó]ri|exist|expéri|experi|paix|paz|prison|prisión|"
    r"cárcel|"
    r"carrière|carrera)|d['\u2019](?:exist|expéri|ancienn)|di (?:storia|garanz|pace|"
    r"esper|"
    r"carcer)|fa(?!\w)|geleden|atrás|später|lang(?!\w)|plus tard|después|depois|dopo|"
    r"garantie|"
    r"frieden|haft|laufzeit|krieg|jubil|bestehen|geburtstag|erfahrung|ervaring|"
    r"historia))"
)
_AGE_ABROAD = rf"{_YEARS_ABROAD}{_LASTED}"
_TENS = r"(?:twenty|thirty|forty|fifty|sixty|seventy|eighty)"
_ONES = r"(?:[ \-](?:one|two|three|four|five|six|seven|eight|nine))?"
_TEENS = r"(?:thir|four|fif|six|seven|eigh|nine)teen|eleven|twelve"
_AGE_END = r"(?![\w%]|[.,:]\d)"
_AGE_WORDS = (
    "age", "âge", "alter", "edad", "età", "idade", "leeftijd", "old", "young",
    "i'm", "i am", "im ",
    "he is", "she is", "he's", "she's", "they are", "who is", "turn", "when i",
    "when he", "when she", "when they", "jahre", "ans",
    "años", "anni", "anos", "jaar", " år", "vuotta", "jährig", "jarig", "enne", " j.",
    " a.", "ich bin", "er ist", "sie ist", "er wird", "sie wird",
)  # fmt: skip

DATES = (
    PatternRule(
        id="dob",
        data_class="identifier.quasi.dob",
        regex=rf"(?<!\w)(?:{_BORN}){IS}(?:(?:on|in|the|le|am|den|der|dem|il|el) )?"
        rf"({_ANY_DATE}|{_RUN_DATE}|(?:{'|'.join(_FOREIGN_MONTHS)}) {_YEAR})"
        rf"(?!\w){_LONG_AGO}",
        score=90,
        group=1,
        gate=ANY_DIGIT,
        words=_BORN_WORDS,
    ),
    # After a star, which means "born" in German, or right after the person; at the
    # beginning of a line, a star is a bullet.
    PatternRule(
        id="dob-star",
        data_class="identifier.quasi.dob",
        regex=rf"(?:[(,]|\w[,;]?[ ])\*[ ]?({_WHOLE_DATE}|{_SHORT_DATE})"
        rf"(?!\d){_LONG_AGO}|"
        r"(?<!\w)(?:patiente?|patientin|pat\.|versicherte[rn]?|assurée?|klient(?:in)?|"
        r"bewohner(?:in)?|résidente?),? (?:\d{1,2}[./]\d{1,2}[./](?:19)?\d\d)(?!\d)|"
        r"(?<!\w)n\. ?\d{1,2}[./]\d{1,2}[./](?:19|20)?\d\d(?= [àa] )",
        score=75,
        digits=4,
    ),
    # In words, or with the year after it: am zwölften März
    # neunzehnhundertvierundachtzig geboren, naissance le quatorze février mille neuf
    # cent cinquante-six.
    PatternRule(
        id="dob-in-german-or-french",
        data_class="identifier.quasi.dob",
        regex=r"(?<!\w)(?:geb(?:oren|\.)|geburt\w{0,6})(?: \w{2,12}){0,4} "
        rf"{_WORDED_DE}|{_WORDED_DE}(?: in [\w\-]{{2,24}})? (?:geboren|zur Welt)|"
        r"(?<!\w)(?:née?|naissance|venue? au monde)(?: [\w\-]{1,14}){0,4} "
        rf"(?:{'|'.join(_FOREIGN_MONTHS)}) (?:mille|mil|deux mille)(?!\w)",
        score=85,
    ),
    # In words: nací el doce de marzo de mil novecientos ochenta y siete.
    PatternRule(
        id="dob-in-words",
        data_class="identifier.quasi.dob",
        regex=r"(?<!\w)(?:nac[ií]|naci[oó]|nacid[oa]|nacimiento|nasci|nasceu|"
        r"nascid[oa]|nascimento)(?: (?:es|é|el|em|a|no|d[ií]a)){0,3} "
        r"(\w{2,14} (?:[ye] \w{2,6} )?de (?:enero|febrero|marzo|abril|mayo|junio|julio|"
        r"agosto|septiembre|setiembre|octubre|noviembre|diciembre|janeiro|fevereiro|"
        r"março|maio|junho|julho|setembro|outubro|novembro|dezembro) "
        r"del? (?:mil nove|dos mil|dois mil|19|20))",
        score=90,
        group=1,
        words=("nac", "nasc"),
    ),
    # The day in a word, the year in figures: "née le trois mai 1981".
    PatternRule(
        id="dob-day-in-words",
        data_class="identifier.quasi.dob",
        regex=r"(?<!\w)(?:(?:born|birth ?date|date of birth|birthday|née|né\(e\)|"
        r"naissance|nat[oa]|nascita|geboren|geb\.|geboortedatum|geburts(?:datum|tag))"
        r"(?: (?:is|was|est|è|ist)|:)? (?:on the|the|le|il|op|am|der)|né le) "
        r"[^\W\d_]{2,20}(?:[ \-][^\W\d_]{2,9}){0,2} (?:of |de |di )?"
        rf"(?:{_MONTH}|{'|'.join(_FOREIGN_MONTHS)}),? {_YEAR}(?!\d)",
        score=90,
        digits=4,
        words=(
            *("born", "birth", "née", "né le", "né(e)", "naissance", "nato", "nata"),
            *("nascita", "geboren", "geb.", "geboorte", "geburt"),
        ),
    ),
    # A full date near such a word: "your date of birth. It's 3/11/1995".
    PatternRule(
        id="dob-near",
        data_class="identifier.quasi.dob",
        regex=r"(?<!\w)(?:dob|d\.o\.b\.?|birth|birthday|birthdate|born|geburt\w{0,6}|"
        r"geb(?:oren|\.)|naissance|née? (?:le|à|en|au)|nacimiento|nacid[oa]|nascita|"
        r"nat[oa]|nascimento|nascid[oa]|"
        r"födelse\w{0,6}|född|fødsels\w{0,4}|født|geboorte\w{0,6}|urodz\w{0,6})(?!\w)"
        rf"[^\d\n]{{0,40}}(?<!\w)({_WHOLE_DATE})(?![\d])",
        score=80,
        group=1,
        gate=ANY_DIGIT,
        words=(
            *("dob", "d.o.b", "birth", "born", "geburt", "geb", "naissance"),
            *("né le", "né en", "né au", "née le", "née en", "née au"),
            *("né à", "née à"),
            *("nacimiento", "nacid", "nascita", "nato", "nata", "nascimento", "nascid"),
            *("födelse", "född", "fødsels", "født", "geboorte", "urodz"),
        ),
    ),
    # The date first: such a day is my date of birth.
    PatternRule(
        id="dob-after",
        data_class="identifier.quasi.dob",
        regex=r"\d(?<![\w/.\-]\d)(?:\d?[/.\-]\d{1,2}[/.\-](?:\d{4}|\d\d)|"
        r"\d{3}-\d\d-\d\d)[)\"',]{0,2}\s{1,2}(?:is|was|as|being)\s(?:\w{2,8}'?s?\s)?"
        r"(?:dob|d\.o\.b\.?|date of birth|birth ?date|birthday)(?!\w)|"
        # In German it is last: am 3. März 1975 in Köln geboren.
        rf"(?<!\w)(?:{_WHOLE_DATE}|\d{{1,2}}\.\d{{1,2}}\.\d\d)(?: in [\w\-]{{2,24}})? "
        r"(?:geboren|zur Welt|auf die Welt|Geburtstag)(?!\w)",
        score=85,
        gate=ANY_DIGIT,
        words=(
            "dob",
            "d.o.b",
            "birth",
            "geboren",
            "zur welt",
            "auf die welt",
            "geburtstag",
        ),
    ),
    PatternRule(
        id="textual-date",
        data_class="identifier.quasi.date",
        regex=rf"(?<!\w)(?:{_TEXTUAL_DATE}|{_DATED})(?!\w)",
        score=60,
        gate=ANY_DIGIT,
        words=_MONTH_WORDS,
    ),
    PatternRule(
        id="textual-date-foreign",
        data_class="identifier.quasi.date",
        regex=rf"(?<!\w)(?:{_FOREIGN_DATE})(?!\w)",
        score=60,
        gate=ANY_DIGIT,
        words=(*_FOREIGN_MONTHS, *_CUT_MONTHS),
    ),
    PatternRule(
        id="numeric-date",
        data_class="identifier.quasi.date",
        regex=r"\d(?<![\w/.\-]\d)(?:\d?([/.\-])\d{1,2}\1(?:\d{4}|\d{2})|"
        r"\d{3}([/.\-])\d{1,2}\2\d{1,2})(?![\w/]|[.\-]\d)",
        score=60,
        digits=4,
    ),
)

AGES = (
    PatternRule(
        id="age",
        data_class="identifier.quasi.age",
        regex=rf"(?<!\w)(?:{_AGE}\s\d{{1,2}}|"
        rf"\d{_SINCE}\d?{_AGE_ABROAD}|\d{{1,2}}{_OLD}|"
        rf"{_I_AM} {_ABOUT}\d{{1,2}}){_AGE_END}",
        score=60,
        gate=ANY_DIGIT,
        words=_AGE_WORDS,
    ),
    # 34 y/o, 34yo, 34-y.o.
    PatternRule(
        id="age-short",
        data_class="identifier.quasi.age",
        regex=r"\d(?<![\w.]\d)\d?[ \-]?y\.?/?o\.?(?!\w)",
        score=60,
        gate=ANY_DIGIT,
    ),
    PatternRule(
        id="age-90-short",
        data_class="identifier.quasi.age90",
        regex=r"(?:9(?<![\w.]9)\d|1(?<![\w.]1)[01]\d)[ \-]?"
        r"(?:y\.?/?o\.?(?!\w)|[MF](?= (?:with|who|pt|patient|presents|presenting)\b))",
        score=75,
        digits=2,
    ),
    # In brackets, 34F or M 41; and "34M here".
    PatternRule(
        id="age-and-sex",
        data_class="identifier.quasi.age",
        regex=r"[(\[]\s?(?:[1-9]\d\s?[,/]?\s?[MF]|[MF]\s?[,/]?\s?[1-9]\d)\s?[)\]]|"
        r"(?<!\w)[1-9]\d ?[MF](?= (?:here|with|who|pt|patient|presents|presenting)\b)",
        score=60,
        digits=2,
        cased=True,
    ),
    PatternRule(
        id="age-spelled",
        data_class="identifier.quasi.age",
        regex=rf"(?<!\w)(?:{_TENS}{_ONES}|{_TEENS})(?:{_OLD})(?!\w)",
        score=60,
        words=("old", "young", "age"),
    ),
    PatternRule(
        id="age-90",
        data_class="identifier.quasi.age90",
        regex=rf"(?<!\w)(?:(?:{_AGE}|{_I_AM}|di anni) {_ABOUT}(?:9\d|1[01]\d)|"
        rf"(?:9{_SINCE}\d|1{_SINCE}(?:0[1-9]|1\d)){_AGE_ABROAD}|"
        r"100 (?:jahre alt|jaar oud|años de edad|anos de idade)|(?<=âgé de )100 ans|"
        r"(?<=âgée de )100 ans|"
        rf"(?:9\d|1[01]\d){_OLD}){_AGE_END}",
        score=75,
        digits=2,
        words=_AGE_WORDS,
    ),
    PatternRule(
        id="age-90-spelled",
        data_class="identifier.quasi.age90",
        regex=rf"(?<!\w)(?:ninety{_ONES}(?:{_OLD})|"
        r"(?<!vor )(?<!seit )(?<!nach )(?:\w{3,6}und)?neunzig(?: jahren?(?: alt)?|"
        r"[ \-]?jährig\w{0,2})|"
        r"(?<!na )(?<!over )(?:\w{2,5}[eë]n)?negentig(?: jaar|[ \-]?jarige?)|"
        r"(?<!il y a )(?<!depuis )(?:quatre-vingt-(?:dix|onze|douze|treize|quatorze|"
        r"quinze|seize)(?:-(?:sept|huit|neuf))?|nonante(?:[ \-]\w{2,6}){0,2}) ans|"
        r"(?<!hace )(?<!há )noventa(?: (?:y|e) \w{3,6})? a[nñ]os|"
        r"(?:ultra)?novant\w{0,8}(?: anni|enne)|nonag[eé]n[aá](?:ri[ao]|ire))(?!\w)",
        score=75,
        words=(
            "ninety",
            "neunzig",
            "negentig",
            "quatre-vingt-",
            "nonante",
            "noventa",
            "novant",
            "nonag",
        ),
    ),
)

OTHERS = (
    PatternRule(
        id="sex-and-trade",
        data_class="identifier.quasi.gender",
        regex=r"(?<!\w)an? ((?:fe)?male) [a-z]{3,20} (?:from|in|aged|living)(?!\w)",
        score=55,
        group=1,
        words=("male",),
    ),
    PatternRule(
        id="home-city",
        data_class="identifier.quasi.city",
        regex=r"(?<!\w)(?:live[sd]?|living|grew up|born|based|reside[sd]?|"
        r"i'?m from|i am from|moved)"
        r"\s(?:in|near|to|at)?\s?"
        r"(?!(?:with|without|alone|together|under|for|from|off|again)(?!\w))"
        r"([A-Z][\w'\-]{2,30})",
        score=55,
        group=1,
        words=(
            "live",
            "living",
            "grew up",
            "born",
            "based",
            "reside",
            "i'm from",
            "im from",
            "i am from",
            "moved",
        ),
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
        words=("work", "employed", "intern"),
    ),
    PatternRule(
        id="occupation",
        data_class="identifier.quasi.occupation",
        regex=r"(?<!\w)(?:i work as|my job is|i am employed as|by profession|"
        r"occupation:)\s(?:an?\s)?(\w{3,30})",
        score=55,
        group=1,
        words=("work as", "job is", "employed as", "profession", "occupation:"),
    ),
    # The data itself: a file or a template of a body's features.
    PatternRule(
        id="biometric",
        data_class="identifier.direct.biometric",
        regex=r"(?<!\w)(?:my|his|her|their|patient'?s|employee'?s|customer'?s|"
        r"client'?s|"
        r"subject'?s|suspect'?s|the attached|enrolled|stored)\s(?:\w{2,12}\s){0,2}"
        r"(?:finger ?prints?|(?:iris|retina|retinal|palm|face|facial|vein)[ \-]?"
        r"(?:scans?|prints?|templates?|images?|geometry|id data)|voice ?prints?|"
        r"biometric (?:data|templates?|scans?|records?)|dna (?:profile|sample|"
        r"sequence))"
        r"(?!\w)",
        score=65,
        words=(
            "print",
            "iris",
            "retina",
            "palm",
            "face",
            "facial",
            "vein",
            "biometric",
            "dna ",
        ),
    ),
    PatternRule(
        id="biometric-template",
        data_class="identifier.direct.biometric",
        regex=r"(?<!\w)(?:minutiae|fingerprint|faceprint|voiceprint|iris ?code|"
        r"biometric|face[ _-]?embedding)[ _\-]?(?:template|hash|vector|id|data|code)?"
        r"\s?[:=]\s?[\"'\[]?(?=[^\s]{0,24}\d)[\w+/.\-]{6,400}",
        score=70,
        gate=ANY_DIGIT,
        words=(
            "minutiae",
            "fingerprint",
            "faceprint",
            "voiceprint",
            "iris",
            "biometric",
            "face",
        ),
    ),
)

ATTRIBUTES = (*DATES, *AGES, *OTHERS)
