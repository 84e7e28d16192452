"""Patterns of postal addresses in the formats of many countries, as data.

This module runs nothing; ``matcher`` does. Every repetition is bounded or cannot
overlap its neighbour, so that the time is linear in the length.
"""

from curtilage.client.detection.detectors.patterns.rule import (
    ANY_DIGIT,
    IS,
    PatternRule,
    listed,
)

# English words at the end of a street's name; the short ones need a blank before.
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
# Words before a street's name, in the languages that write the number last.
_BEFORE = listed("""
via viale piazza piazzale piazzetta corso vicolo contrada lungomare salita galleria
rua avenida travessa calçada praça praca estrada alameda beco ladeira calle carrer
plaza paseo ronda camino carretera travesía glorieta pasaje urbanización callejón
calzada rue chaussée chemin allée impasse quai drève boulevard avenue ulica ulice
aleja aleje osiedle strada bulevardul jalan jln utca bulevar trg
""")
_SHORT_BEFORE = (r"ul\.", r"al\.", r"os\.", r"str\.", r"jl\.", r"av\.", r"avda\.",
                 r"p\.z?za", r"p\.le", r"v\.le", r"c\.so", r"pza\.", r"ctra\.",
                 r"urb\.", r"bv\.", r"bd\.")  # fmt: skip
# The same for the preliminary search, and abbreviations of one letter.
_WRITTEN_SHORT = ("ul.", "al.", "os.", "str.", "jl.", "av.", "avda.", "p.za", "p.zza",
                  "p.le", "v.le", "c.so", "pza.", "ctra.", "urb.", "bv.", "bd.",
                  "c/ ", " c/", ",c/")  # fmt: skip
# These are everyday words as well, so only before a capitalised name.
_COMMON_BEFORE = listed(
    "largo località borgo place route cours square villa passage quadra"
)
# Words inside a street's name without a capital.
_LINK = (
    r"(?:d[aeiou]l?s?|della|delle|degli|dei|de la|de las|de los|du|des|la|las|los|le|"
    r"les|e|y|et|d['\u2019]|l['\u2019]|dell['\u2019])"
)
_NAME_WORD = r"[^\W\d][\w.'\u2019\-]{1,23}"
# Words after "via" or "corso" where no street is meant.
_NO_NAME = (
    r"(?:e?-?mail|sms|fax|telefono|internet|web|app|chat|orale|oral|endovenosa|venosa|"
    r"intramuscol\w|sottocutanea|intravenosa|subcutánea|rettale|retal|tópica|mare|"
    r"terra|"
    r"aerea|com|con|tiene|tem|ha|the|an?|of|for|is|nel|entro|between|at|to|from|and|"
    r"with|acheter|pour|est|sont|es|son|is|are|di(?= \d)|de(?= \d))(?!\w)"
)
# Units after a number: a count or a measure, not a house number.
_COUNTED = (
    r"(?![ ]?(?:%|h\b|km|m\b|mm|cm|kg|mg|ml|g\b|x\b|uhr|jahr|tag|woche|monat|stunde|"
    r"minut|"
    r"sekund|euro|heures?|ans\b|jours|fois|mois|horas|d[ií]as|veces|años|anos|vezes|"
    r"ore\b|"
    r"giorni|volte|anni|keer|dagen|weken|uur|miliard|million|mil\b|casas|metr|milhões))"
)
# Words before a number that resemble a street's name: am Montag 12.
_NO_LANE = (
    r"(?!(?:januar|jänner|februar|märz|april|mai|juni|juli|august|september|oktober|"
    r"november|"
    r"dezember|montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonntag|sonnabend|"
    r"jahr|monat|woche|tag|stunde|ende|anfang|mittel|schnitt|durchschnitt|vergleich|"
    r"verhältnis|"
    r"beispiel|regel|fall|schritt|kapitel|abschnitt|artikel|absatz|paragraph|satz|"
    r"spiel|team|"
    r"zimmer|raum|haus|gleis|tabelle|liste|klasse|stufe|runde|saison|phase|version|"
    r"datei|"
    r"zeile|spalte|seite|folge|band|teil|level|bereich|alter|umkreis|rahmen|zeitraum|"
    r"stock|"
    r"quartal|semester|anhang|bild|punkt|frage|aufgabe|übung|not\b|nacht|preis|wert|"
    r"fenster|"
    r"takt|akt\b|vers|block|feld|modul|test|takte|szene|gruppe|platz|staffel|bus|"
    r"zug)\w{0,3} )"
)
# Endings of street names, in the languages that write them as one word.
_ENDINGS = listed("""
strasse straße gasse platz allee gatan vägen vagen straat laan gracht plein gade vej
vejen veien gata katu kuja polku
""")
_STATE = (
    r"(?:A[KLRZ]|C[AOT]|D[CE]|FL|GA|HI|I[ADLN]|K[SY]|LA|M[ADEINOST]|N[CDEHJMVY]|"
    r"O[HKR]|PA|PR|RI|S[CD]|T[NX]|UT|V[AIT]|W[AIVY]|A[AEP]|GU)"
)
_HOUSE = r"\d{1,5}[a-z]?(?:\s?[/\-]\s?\d{1,4}[a-z]?)?"
# The largest towns with codes of five digits, and those with four.
_TOWNS = listed("""
Berlin Hamburg München Köln Frankfurt Stuttgart Düsseldorf Leipzig Dortmund Essen
Bremen Dresden Hannover Nürnberg Duisburg Bochum Wuppertal Bielefeld Bonn Münster
Mannheim Karlsruhe Augsburg Wiesbaden Gelsenkirchen Mönchengladbach Aachen
Braunschweig Kiel Chemnitz Halle Magdeburg Freiburg Krefeld Mainz Lübeck Erfurt
Rostock Kassel Hagen Potsdam Saarbrücken Ludwigshafen Oldenburg Osnabrück Heidelberg
Darmstadt Regensburg Würzburg Ingolstadt Ulm Göttingen Trier Jena Paris Marseille Lyon
Toulouse Nice Nantes Montpellier Strasbourg Bordeaux Lille Rennes Reims Toulon
Grenoble Dijon Angers Nîmes Clermont Brest Tours Amiens Limoges Metz Besançon
Perpignan Orléans Rouen Mulhouse Caen Nancy Roma Milano Napoli Torino Palermo Genova
Bologna Firenze Bari Catania Venezia Verona Messina Padova Trieste Brescia Parma
Taranto Prato Modena Reggio Cagliari Livorno Ravenna Ferrara Rimini Salerno Siena
Bergamo Trento Perugia Pescara Lecce Madrid Barcelona Valencia Sevilla Zaragoza Málaga
Murcia Palma Bilbao Alicante Córdoba Valladolid Vigo Gijón Granada Elche Oviedo
Cartagena Pamplona Almería Donostia Santander Burgos Albacete Castellón Salamanca
Huelva Logroño Badajoz León Cádiz Tarragona Lleida Toledo Girona México Guadalajara
Monterrey Puebla
""")
_SMALL_CODE_TOWNS = (
    *listed("""
Wien Graz Linz Salzburg Innsbruck Klagenfurt Villach Wels Dornbirn Bregenz Zürich Basel
Bern Genève Genf Lausanne Luzern Winterthur Lugano Biel Fribourg Neuchâtel Bruxelles
Brussel Antwerpen Gent Liège Luik Charleroi Namur Brugge Leuven Mechelen Mons Hasselt
Lisboa Porto Braga Coimbra
"""),
    "St. Gallen",
)
_ADDRESS = "identifier.direct.address"
_ZIP = "identifier.quasi.zip"

# Words that are in no English street name.
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
    # 12 rue de la Paix; 3, Avenue Foch; 7 place Bellecour, but not 18 cours de yoga
    PatternRule(
        id="street-number-first-romance",
        data_class=_ADDRESS,
        regex=r"\d(?<![\w.$€£]\d)\d{0,3}(?:[ ]?(?:bis|ter|[a-d]))?,?[ \t]{1,2}"
        r"(?:(?:rue|avenue|av\.|boulevard|bd\.?|bld\.?|blvd|boul\.|chemin|impasse|"
        r"quai|r\.|allées?|"
        r"allee|faubourg|fbg|lotissement|ruelle|rte\.?|place(?= de)|route(?= de))[ "
        r"\t]{1,2}(?:d[eu]s?[ \t]|de la[ \t]|[dl]['\u2019])?[\w.'\u2019\-]{3,24}|"
        r"(?:place|route|cours|square|sq\.|passage|villa|résidence|hameau|esplanade)[ "
        r"\t]{1,2}"
        rf"(?:{_LINK}[ \t]?){{0,2}}(?-i:[A-ZÀ-Þ])[\w'\u2019\-]{{2,24}})",
        score=65,
        gate=ANY_DIGIT,
        words=(
            *(
                "rue",
                " r.",
                "\tr.",
                "avenue",
                "av.",
                "boulevard",
                " bd",
                "\tbd",
                "bld",
                "blvd",
                "boul.",
            ),
            *("chemin", "impasse", "quai"),
            *(
                "place",
                "allée",
                "allee",
                "route",
                "rte",
                "faubourg",
                "fbg",
                "lotissement",
            ),
            *("cours", "square", "sq.", "passage", "villa", "résidence", "hameau"),
            "esplanade",
        ),
    ),
    # Via Roma 12; ul. Długa 5/7; Calle Mayor, 3; Rua 25 de Março, 350
    PatternRule(
        id="street-name-first",
        data_class=_ADDRESS,
        regex=rf"(?<!\w)(?:(?:{'|'.join((*_BEFORE, *_COMMON_BEFORE, *_SHORT_BEFORE))})"
        r"[ \t]{1,2}|c/ |[ ,]c/|p\.?º )"
        rf"(?:{_LINK}[ \t]?){{0,2}}(?:\d{{1,2}}[ ](?:de "
        rf")?)?(?-i:[A-ZÀ-ÞĀ-Ž])[\w.'\u2019\-]{{0,23}}"
        rf"(?:[ \t]{{1,2}}(?:{_LINK}|(?-i:[A-ZÀ-ÞĀ-Ž])[\w.'\u2019\-]{{0,23}})){{0,4}}"
        rf"(?:,[ \t]?|[ \t]{{1,2}})(?:n(?:[°ºro]|\.[°ºr]?|[uú]m\.?)?[ ]?|#)?{_HOUSE}"
        rf"(?!\w|[.,]\d){_COUNTED}",
        score=65,
        gate=ANY_DIGIT,
        words=(
            *_BEFORE,
            *_COMMON_BEFORE,
            *_WRITTEN_SHORT,
            *("pº ", "p.º"),
        ),
    ),
    # Without capitals, as typed in a hurry; then only the end, a mark or a postcode may
    # follow: via roma 12, Calle de la bola 19.
    PatternRule(
        id="street-name-first-small",
        data_class=_ADDRESS,
        regex=rf"(?<!\w)(?:(?:{'|'.join((*_BEFORE, *_SHORT_BEFORE))})[ \t]{{1,2}}|c/ |"
        r"[ ,]c/)"
        rf"(?!{_NO_NAME})(?:{_LINK} )?{_NAME_WORD}(?: "
        rf"(?!{_NO_NAME}){_NAME_WORD}){{0,3}}"
        r",?[ ](?:n[°ºro]\.?[ ]?|#)?(?!(?:19|20)\d\d)\d{1,4}[a-z]?"
        r"(?=[ ]?(?:[,;)\n]|\.(?!\d)|\Z)| \d{4,5}(?!\d)| "
        r"(?:and|e|ed|y|et|o|in|a|à|en|em|con|com) )",
        score=60,
        gate=ANY_DIGIT,
        words=(
            *_BEFORE,
            *_WRITTEN_SHORT,
        ),
    ),
    # Lindenstraße 7; Alter Markt-Gasse 3a; Storgatan 12; Kurfürstendamm 21
    PatternRule(
        id="street-one-word",
        data_class=_ADDRESS,
        regex=r"(?<=[^\W\d_][^\W\d_])(?:-?(?:"
        rf"{'|'.join(_ENDINGS)}|str\.|weg|wg\.)"
        r"(?<!onderweg)(?<!unterweg)(?<!durchweg)(?<!hinweg)(?<!rückweg)(?<!snelweg)"
        r"(?<!radweg)(?<!(?:sitz|steh|park|stel|list|elle|tart|eits|piel|ager)platz)"
        rf"(?<!enplatz)[ \t]{{1,2}}|str[ \t]){_HOUSE}(?!\w|[.,:]\d){_COUNTED}",
        score=65,
        gate=ANY_DIGIT,
        words=(*_ENDINGS, "str.", "str ", "str\t", "weg", "wg."),
    ),
    # Only with a capital, since other words have these endings too: Kurfürstendamm 21,
    # but not "investigate 10 cases" or "a decade 3 times".
    PatternRule(
        id="street-one-word-capital",
        data_class=_ADDRESS,
        regex=r"(?<!\w)[A-ZÄÖÜÅØÆ]\w{2,22}?(?:gate|tie|damm|chaussee|promenade|ufer|"
        rf"stieg|graben|kade|dreef|dijk|steeg|singel)[ ]{{1,2}}{_HOUSE}(?!\w|"
        rf"[.,:]\d){_COUNTED}",
        score=65,
        gate=ANY_DIGIT,
        cased=True,
        words=(
            "gate ",
            "tie ",
            "damm ",
            "chaussee ",
            "promenade ",
            "ufer ",
            "stieg ",
            "graben ",
            "kade ",
            "dreef ",
            "dijk ",
            "steeg ",
            "singel ",
        ),
    ),
    # Lange Straße 7; Am Markt 3; Unter den Linden 77; Kossuth Lajos utca 12
    PatternRule(
        id="street-two-words",
        data_class=_ADDRESS,
        regex=r"(?<!\w)(?!(?:Der|Die|Das|Den|Dem|Ein|Eine|Einen|Einem|Auf|Diese|"
        r"Dieser|Kein|Mein|Neuer|Seine|Ihre)\b)(?:[A-ZÄÖÜÁÉÍÓŐÚŰ][\w.\-]{2,20}[ ]){1,2}"
        r"(?:Straße|Strasse|Str\.|Weg|Platz|Allee|Gasse|utca|tér|körút|väg|gade|gate|"
        r"vei|Allé|Plads|Vænge|Stræde|Singel|Kade|Voorhout|Ring|Damm|Ufer|Chaussee|"
        r"Graben|Kai|Dijk|Laan|Plein)[ ]{1,2}"
        rf"{_HOUSE}(?!\w|[.,:]\d){_COUNTED}|"
        rf"(?<!\w)(?:Am|An der|Auf dem|Im|In der|Unter den|Zum|Zur)[ ](?i:{_NO_LANE})"
        rf"(?:[A-ZÄÖÜ][\w\-]{{2,24}}[ ](?i:{_NO_LANE}))?"
        # A counted thing would follow; a house number is at the end, or before the
        # town.
        r"[A-ZÄÖÜ][\w\-]{2,24}[ ]\d{1,3}[ ]?[a-z]?(?!\w)"
        r"(?=[ ]?(?:[,;)\n/]|\.(?!\d)|\Z)| in [A-ZÄÖÜ]| (?:and|und|oder|bei|ist|is) )",
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
            *(
                "ring",
                "damm",
                "ufer",
                "chaussee",
                "graben",
                "kai",
                "dijk",
                "laan",
                "plein",
            ),
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
    # Any name and number before a postcode and town: Schlossberg 4, 88212 Ravensburg
    PatternRule(
        id="street-before-postcode",
        data_class=_ADDRESS,
        regex=r"(?<!\w)[A-ZÄÖÜÀ-Þ][\w.'\u2019\-]{2,30} \d{1,3} "
        r"?[a-zA-Z]?(?:[/\-]\d{1,3})?"
        r"(?:,? bus \d{1,3})?,?[ \n]{1,2}(?:(?:D|A|CH|B|NL)-)?"
        r"(?:\d{4,5}[ ][A-ZÄÖÜÉ][a-zà-ÿ\-]{2,24}|\d{4} ?[A-Z]{2})(?!\w)"
        r"(?<!Uhr)(?<!Euro)(?<!Menschen)(?<!Personen)(?<!Besucher)(?<!Einwohner)",
        score=70,
        digits=5,
        cased=True,
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
    # The fields of a record: {"strasse": "Mühlweg", "hausnummer": "3"}.
    PatternRule(
        id="address-fields",
        data_class=_ADDRESS,
        regex=r"(?<![^\W_])(?:strasse|straße|str|rue|street|straat|calle|rua|indirizzo)"
        r"[\"']?\s?(?:[:=]|>)\s?[\"']?[A-ZÄÖÜÀ-Þa-zà-ž][^\n\"'<;|,]{2,40}[\"'<;|,]"
        r"[^\n\d]{0,24}(?:haus_?-?n(?:umme)?r|house_?n(?:umbe|r)|huisn(?:umme)?r|"
        r"n(?:um[eé]r)?o|num|nr|numero_?civico)[\"']?\s?(?:[:=]|>)\s?[\"']?\d{1,4}"
        r"(?!\d)",
        score=70,
        gate=ANY_DIGIT,
        words=(
            "strasse",
            "straße",
            "str",
            "rue",
            "street",
            "straat",
            "calle",
            "rua",
            "indirizzo",
        ),
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
        rf"code postal|c[oó]digo postal|c\. ?p\.|cp[ :.](?=[ ]?\d{{5}}(?!\d))|cap|cep|"
        rf"postnummer|postcode|kod pocztowy|postinumero|ps[cč])"
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
            *("c.p.", "c. p.", "cp ", "cp:", "cp."),
        ),
    ),
    # a person "from 62704", not an amount
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
    # Without the country's sign, the town must be known: 10000 Menschen, 1945 Berlin.
    PatternRule(
        id="post-code-and-town",
        data_class=_ZIP,
        regex=rf"(?<![\w.,$€£/\-])(?:\d{{5}}\s(?:{'|'.join(_TOWNS)})|(?!1[3-9]\d\d|"
        rf"20[1-9]\d)[1-9]\d{{3}}\s(?:{'|'.join(_SMALL_CODE_TOWNS)}))(?!\w)",
        score=60,
        digits=4,
        cased=True,
    ),
    # 1012AB and 01310-100: no other number has this form.
    PatternRule(
        id="post-code-bare",
        data_class=_ZIP,
        regex=r"(?<![\w.,/\-])(?:[1-9]\d{3}(?!SA|SD|SS)[A-Z]{2}|\d{5}-\d{3}|"
        r"[A-HJ-NP-Z]\d{4}[A-Z]{3})(?![\w\-])",
        score=55,
        digits=4,
        cased=True,
    ),
)

ADDRESSES = (*STREETS, *POST_CODES)
