"""Patterns for addresses of people and machines, as data.

E-mail, telephone, fax, accounts on the Web, network addresses, devices and vehicles.
This module runs nothing; ``matcher`` does. Every repetition is bounded or cannot
overlap its neighbour, so that the time is linear in the length.
"""

from curtilage.client.detection.detectors.patterns import check_digits as checks
from curtilage.client.detection.detectors.patterns.rule import PatternRule, labelled

_PHONE = r"\+?\(?\d(?:[\s().\-/]{0,3}\d){5,14}"

# Accounts of a project or a machine, which identify no person (RFC 2142 names most of
# them). The sender for a practice is a person, so "office" is not one of them.
_ROLES = (
    r"(?:git|hg|svn|no-?reply|do-?not-?reply|postmaster|hostmaster|webmaster|"
    r"mailer-daemon|abuse|security|support|info|help|licens(?:e|ing)|opensource|"
    r"maintainers?|developers?|dev|bugs?|users|announce)"
)
# The part after the sign in "lodash@4.17.21", "checkout@v4" and "react@latest"; an
# address of four numbers is a host.
_RELEASE = (
    r"(?:v\d{1,4}(?:\.\d{1,5}){0,3}|\d{1,4}(?:(?:\.\d{1,5}){2})?|latest|sha256)"
    r"(?![\w\-]|\.\w)"
)

# The letters of a plate, by canton (VZAE, annex 2).
_CANTONS = (
    "AG|AI|AR|BE|BL|BS|FR|GE|GL|GR|JU|LU|NE|NW|OW|SG|SH|SO|SZ|TG|TI|UR|VD|VS|ZG|ZH"
)
# Vehicles that have a plate, and verbs for them.
_CAR = (
    r"auto|wagen|pkw|kfz|fahrzeug|lieferwagen|motorrad|fahrer(?:in)?|halter\w{0,8}|"
    r"unfallgegner|einfahrt|geblitzt|abgeschleppt|falschparker|voiture|véhicule|bagnole|"
    r"camionnette|moto|scooter|conduct(?:eur|rice)|garée?|stationnée?|flashée?|"
    r"golf|polo|passat|clio|twingo|mégane|megane|kangoo|duster|fiesta|corsa|yaris|"
    r"peugeot|renault|citro[eë]n|bmw|audi|mercedes|skoda|toyota|tesla"
)
_PLATE = (
    r"[a-z]{2}-?\d{3}-?[a-z]{2}|(?-i:[A-Z]{2}) \d{3} (?-i:[A-Z]{2})|"
    r"[a-zäöü]{1,3}-[a-z]{1,2} ?\d{1,4} ?[eh]?|"
    r"(?-i:[A-ZÄÖÜ]{1,3})[ \-](?-i:[A-Z]{1,2})[ \-]?\d{1,4} ?[eh]?|"
    rf"(?-i:{_CANTONS})[ \-]?\d{{4,6}}|\d-[a-z]{{3}}-\d{{3}}"
)

REACH = (
    # No suffix list: alice@hospital.local is an address too, and so is
    # root@localhost (F5, F6).
    PatternRule(
        id="email",
        data_class="identifier.direct.email",
        regex=rf"(?<![\w.+%'\-])(?!{_ROLES}@[\w\-]{{1,63}}\.\w)[\w.+%'\-]{{1,64}}@"
        rf"(?!{_RELEASE})"
        r"(?:[\w\-]{1,63}(?:\.[\w\-]{1,63}){1,6}|[\w\-]{2,63})",
        score=90,
        gate="@",
        everywhere=True,
    ),
    PatternRule(
        id="email-bracketed-host",
        data_class="identifier.direct.email",
        regex=r"(?<![\w.+%'\-])[\w.+%'\-]{1,64}@\[[0-9a-f.:]{3,45}\]",
        score=90,
        gate="@",
        everywhere=True,
    ),
    # "jane (at) corp": no dot follows, so that no reading joins it.
    PatternRule(
        id="email-spoken",
        data_class="identifier.direct.email",
        regex=r"(?<![\w.])[\w.\-]{2,40}[ ]?[(\[{<][ ]?at[ ]?[)\]}>][ ]?[\w.\-]{2,63}",
        score=80,
        gate="([{<",
        words=("(at", "( at", "[at", "[ at", "{at", "{ at", "<at", "< at"),
    ),
    # Spelled out, with the sign's name in other languages than English, or with blanks:
    # marion point petit arobase orange point fr, m.petit @ free.fr, mail: mp at free.fr
    PatternRule(
        id="email-told",
        data_class="identifier.direct.email",
        regex=r"(?<![\w.])[\w.\-]{2,40}(?: (?:punkt|point|punto|ponto|punt|dot) "
        r"[\w\-]{1,30}){0,3}(?: ?[(\[]? ?(?:arobase|klammeraffe|chiocciola|arroba|"
        r"apenstaartje) ?[)\]]? ?[\w\-]{2,40}"
        r"(?: ?(?:\.|punkt|point|punto|ponto|punt|dot) ?[a-z]{2,12}){1,2}|"
        r" (?:at|ät) [\w\-]{2,30} (?:punkt|point|punto|ponto|punt|dot) "
        r"(?:de|at|ch|li|fr|be|lu|ca|it|es|pt|nl|eu|uk|com|net|org|info))(?!\w)|"
        r"(?<![\w.])[\w\-]{1,30}[._][\w.\-]{1,30} @ [\w\-]{2,40}\.[a-z]{2,6}(?!\w)|"
        r"(?<!\w)(?:e-?mail|mail|courriel|adel|correo|posta)\s{0,2}[:=]\s{0,2}"
        r"[\w.\-]{2,40} (?:at|@) [\w\-.]{2,40}\.[a-z]{2,6}(?!\w)",
        score=75,
        words=(
            "arobase",
            "klammeraffe",
            "chiocciola",
            "arroba",
            "apenstaartje",
            " at ",
            " ät ",
            " @ ",
        ),
    ),
    labelled(
        "phone-labelled",
        "identifier.direct.phone",
        r"t[eé]l(?:ephone|efon|efono|éfono|efone|éphone|efoon|(?:ef|efo)onnummer|em)?|"
        r"(?:(?:tele)?phone|fone?)|cell?(?:phone|ulare?|\.)?|mobi(?:l|el)(?:e|nummer|"
        r"telefon)?|"
        r"handy(?:nummer)?|rufnummer|durchwahl|natel|gsm|portable|port\.|tph|"
        r"num(?:[eé]ro)? perso(?:nnel)?|ligne directe|móvil|movil|"
        r"te?lem[oó]vel|t[fl][flmn]o?\.?|zap|recapito|contac?to|kontakt|komórka|"
        r"puhelin(?:numero)?|erreichbar (?:unter|auf)|joignable au|bereikbaar op|"
        r"raggiungibile al|(?:ll[aá]ma(?:me|dme)|chiama(?:mi|temi)|appelez-moi|ligue|"
        r"bel me)"
        r"(?: al| ao| au| op| para| para o)?|rufen sie (?:mich )?an|mon num[eé]ro(?: "
        r"est(?: le)?| :)|"
        r"mein[e]? nummer|mijn nummer|mi n[uú]mero|il mio numero|(?:o )?meu n[uú]mero|"
        r"call(?: me)?(?: back)?(?: at| on)?|pager|"
        r"whatsapp|signal|text me(?: at| on)?|reach me(?: at| on)?|sms|landline",
        _PHONE,
        words="tel|tél|phone|fon|cel|mobi|handy|rufn|durchwahl|gsm|portable|port.|tph|perso|ligne|móvil|"
        "movil|"
        "tlem|tff|tfn|tfm|tfl|tlf|tln|tlm|tll|zap|recapito|contato|contacto|kontakt|"
        "komórka|"
        "erreichbar|joignable|bereikbaar|raggiungibile|llama|llám|chiama|appelez|"
        "ligue|bel me|"
        "rufen|mon num|mein|mijn nummer|mi num|mi núm|mio num|meu num|meu núm|"
        "puhelin|call|pager|whatsapp|signal|text me|reach me|sms|landline",
    ),
    labelled(
        "fax",
        "identifier.direct.fax",
        r"(?:tele|e)?fax(?:nummer)?|facsimile|télécopie|faks",
        _PHONE,
        words="fax|facsimile|télécopie|faks",
        score=80,
    ),
    # An internal extension; a film has a "Klappe 2" as well.
    PatternRule(
        id="phone-extension",
        data_class="identifier.direct.phone",
        regex=r"(?<!\w)(?:durchwahl|nebenstelle|klappe|(?:haus)?apparat|dw\.?|"
        r"(?<!de )poste|ligne directe)(?: (?:ist|lautet|est(?: le)?|nr\.?|n[°º]))?"
        r"\s?:?\s?-?(?!(?:19|20)\d\d(?!\d))(\d{3,5})(?!\w|[.,:]\d)",
        score=60,
        group=1,
        digits=3,
    ),
    PatternRule(
        id="phone-international",
        data_class="identifier.direct.phone",
        regex=r"(?:\+|00)(?<![\w+]\+)(?<![\w+]00)[1-9]\d{0,2}"
        r"(?:[\s().\-/]{0,3}\d){6,12}(?!\w)",
        score=70,
        digits=7,
    ),
    PatternRule(
        id="phone-grouped",
        data_class="identifier.direct.phone",
        regex=r"(?<![\w.\-])\(?\d{3}\)?[\s.\-]{1,2}\d{3}[\s.\-]\d{4}(?![\w\-]|\.\d)",
        score=60,
        digits=10,
    ),
)

ACCOUNTS = (
    PatternRule(
        id="username",
        data_class="identifier.direct.username",
        regex=r"(?<!\w)(?:user ?name|user ?id|login|handle|screen name|"
        r"benutzername|nom d'utilisateur|nombre de usuario|nome utente)(?: is|"
        r":|=| was| ist| est| es| è)\s{0,2}[\"'@]?"
        r"((?!(?:not|a|an|the|in|my|wrong|incorrect|invalid|required|"
        r"already|taken|being|str|string|none|null|input|request|"
        r"too|also|never|no|blocked|locked|disabled|and)\b)[\w.\-]{2,40})",
        score=60,
        group=1,
        words=(
            "user",
            "login",
            "handle",
            "screen name",
            "benutzername",
            "nom d'utilisateur",
            "nombre de usuario",
            "nome utente",
        ),
    ),
    PatternRule(
        id="handle",
        data_class="identifier.direct.username",
        regex=r"@(?<![\w@/.]@)[A-Za-z][\w]{2,30}(?:\d|_)\w{0,20}(?![\w.(])",
        score=45,
        gate="@",
    ),
    # "@some.body" in a chat. At the beginning of a line it is a decorator's name,
    # unless a colon follows.
    PatternRule(
        id="handle-dotted",
        data_class="identifier.direct.username",
        regex=r"@(?<![\w@/.]@)(?:(?<=[^\s]\s@)(?<!\n@)|(?<=[\]>()]@)|"
        r"(?=[\w.\-]{3,40}:\s))"
        r"[a-z][\w\-]{0,30}(?:\.[\w\-]{1,30}){1,3}(?![\w(/])(?!\.[\w(])",
        score=45,
        gate="@",
    ),
    # The speaker in an exported chat: "[10:32] some_body7: ...", "U02AB3CD4 [10:32]".
    PatternRule(
        id="chat-speaker",
        data_class="identifier.direct.username",
        regex=r"(?:\A|(?<=\n))[ \t]{0,8}[\[(]?\d{1,2}:\d{2}[\])]?[ \t]{1,3}(?:- )?<?"
        r"@?((?=[\w.\-]{0,31}[\d_.])[a-z][\w.\-]{1,31})>?: ",
        score=45,
        group=1,
        digits=3,
    ),
    PatternRule(
        id="chat-member",
        data_class="identifier.direct.username",
        regex=r"(?:\A|(?<=\n))[UW](?=[A-Z0-9]{0,10}\d)[A-Z0-9]{8,10}"
        r"(?=:|[ \t]{1,3}[\[(]?\d{1,2}:\d{2})",
        score=45,
        cased=True,
        digits=1,
    ),
    PatternRule(
        id="profile-link",
        data_class="identifier.direct.url_personal",
        regex=r"(?<!\w)(?:linkedin\.com/in|facebook\.com|fb\.com|instagram\.com|"
        r"twitter\.com|x\.com|tiktok\.com/@|t\.me|venmo\.com|paypal\.me|wa\.me|"
        r"snapchat\.com/add|bsky\.app/profile|"
        r"reddit\.com/u(?:ser)?)/?[\w.\-@]{2,40}|"
        # A profile; with a further part it is a repository.
        r"(?<!\w)git(?:hub|lab)\.com/[\w.\-@]{2,40}(?![\w.\-@]|/[\w.\-])|"
        # Unless the owner has a name as in a company's directory.
        r"(?<!\w)(?:gitlab\.com|bitbucket\.org|codeberg\.org)/(?:[a-z]{3,30}\.[a-z]|"
        r"[a-z]\.[a-z]{3,30})(?![\w.\-@])(?:/[\w.\-/]{1,80})?",
        score=60,
        gate=".",
        words=(
            "linkedin.com/in",
            "facebook.com",
            "fb.com",
            "instagram.com",
            "twitter.com",
            "x.com",
            "tiktok.com/@",
            "t.me",
            "venmo.com",
            "paypal.me",
            "wa.me",
            "snapchat.com/add",
            "bsky.app/profile",
            "github.com",
            "gitlab.com",
            "bitbucket.org",
            "codeberg.org",
            "reddit.com/u",
        ),
    ),
    PatternRule(
        id="link",
        data_class="identifier.quasi.url",
        regex=r"(?<!\w)(?:https?://|www\.)[^\s<>\"']{3,2000}",
        score=60,
        words=("http://", "https://", "www."),
    ),
    # Identifiers of a browser: "Cookie: sid=…", "_ga=GA1.2.…", "JSESSIONID=…".
    PatternRule(
        id="cookie",
        data_class="identifier.direct.device",
        regex=r"(?<!\w)(?:(?:set-)?cookie:\s{0,3}[\w.\-]{1,64}=[^\s;]{4,400}|"
        r"(?:_ga|_gid|_fbp|_fbc|_gcl_au|_clck|__utma|__cfduid|datr|IDE|MUID|"
        r"jsessionid|phpsessid|asp\.net_sessionid|connect\.sid|session_?id|sid)"
        r"\s?=\s?[\"']?(?=[\w.%:\-]{0,80}\d)[\w.%:\-]{10,400})",
        score=75,
        gate="=:",
        words=(
            "cookie:",
            "_ga",
            "_gid",
            "_fbp",
            "_fbc",
            "_gcl_au",
            "_clck",
            "__utma",
            "__cfduid",
            "datr",
            "ide",
            "muid",
            "sid",
            "sessionid",
            "session_id",
            "phpsessid",
        ),
    ),
    labelled(
        "cookie-id",
        "identifier.direct.device",
        r"cookie[ -]?ids?|tracking[ -]?id|client[ -]?id cookie|visitor[ -]?id|"
        r"ad(?:vertising)?[ -]?id|idfa|gaid|aaid|browser fingerprint|"
        r"device fingerprint",
        r"(?=[\w.\-]{0,40}\d)[\w.\-]{8,80}",
        words="cookie|tracking|client|visitor|adid|ad-id|ad id|advertising|idfa|gaid|"
        "aaid|fingerprint",
    ),
)

NETWORK = (
    PatternRule(
        id="ipv4",
        data_class="identifier.direct.ip",
        regex=r"\d(?<![\w.]\d)\d{0,2}(?:\.\d{1,3}){3}(?![\w]|\.\d)",
        score=75,
        check=checks.ip_address,
        required=True,
        gate=".",
        digits=4,
    ),
    PatternRule(
        id="ipv6",
        data_class="identifier.direct.ip",
        regex=r"[0-9a-f:](?<![\w:.].)(?:(?<=:)|(?=[0-9a-f]{0,3}:))"
        r"[0-9a-f:]{2,38}(?![\w:])",
        score=75,
        check=checks.ip_address,
        required=True,
        gate=":",
    ),
    PatternRule(
        id="mac",
        data_class="identifier.direct.mac",
        regex=r"[\dA-Fa-f](?<![\w:\-].)[\dA-Fa-f](?:([:\-])(?:[\dA-Fa-f]{2}\1){4}"
        r"[\dA-Fa-f]{2}|[\dA-Fa-f]{2}\.[\dA-Fa-f]{4}\.[\dA-Fa-f]{4})(?![\w:\-])",
        score=85,
        gate=":-.",
        cased=True,
    ),
)

THINGS = (
    labelled(
        "imei-checked",
        "identifier.direct.device",
        r"imei(?:sv)?|meid",
        r"\d{2}[ \-]?\d{6}[ \-]?\d{6}[ \-]?\d{1,2}",
        words="imei|meid",
        score=80,
        check=checks.imei,
    ),
    labelled(
        "imei",
        "identifier.direct.device",
        r"imei|meid|udid|iccid|imsi|serial(?: number)?|seriennummer|"
        r"num[eé]ro de s[eé]rie|número de serie|numero di serie|serienummer|"
        r"device id|s/n",
        words="imei|meid|udid|iccid|imsi|serial|seriennummer|serie|série|device id|s/n",
    ),
    # Pacemakers and pumps are devices too: 21 CFR 801.40, the UDI's (01) part.
    PatternRule(
        id="udi",
        data_class="identifier.direct.device",
        regex=r"\(01\)\s?\d{14}",
        score=80,
        digits=14,
        words=("(01)",),
    ),
    labelled(
        "plate",
        "identifier.direct.vehicle",
        r"(?:licen[cs]e|number|registration|vehicle) plates?|"
        r"(?:car|vehicle|my) reg|reg(?:istration)? (?:number|no\.?|plate)|"
        r"(?:(?:auto|kfz-?)?kennzeichen|nummernschild|plaque(?: "
        r"d['\u2019]immatriculation)?|"
        r"immatriculation|immatriculée?|immat\.?|carte grise|kennz\.?|"
        r"matr[íi]cula|placas?(?=:| [a-z]{3}-?\d)|"
        r"patente(?=:| (?:es )?[a-z]{2,3} \d{3})|"
        r"targat?[ao]?|"
        r"kenteken|numm?erplaat|nummerplade|registreringsnummer|rekisterinumero|"
        r"numer rejestracyjny|plate (?:number|no|is|reads))"
        # A part's name may look the same, and has a number of its own.
        r"(?!(?:[ ](?:base|gráfica|rtx|gtx|atx|de)|s? \d{1,4} ?(?:mm|cm)))",
        # Not with a year, a price or a word next to a number: matrícula 2023.
        r"(?!(?:19|20)\d\d(?![\w\- ]))(?!(?:de|di|da|do|en|a|la|el) )"
        r"(?=[A-Z0-9\-]{0,9}\d|(?:[A-Z]{1,3}[ \-]){1,2}[A-Z0-9]{0,3}\d)"
        r"[A-Z0-9](?:[A-Z0-9\-]|[ ](?=[A-Z0-9\- ]{0,6}\d)){1,8}"
        r"[A-Z0-9]",
        words="plate|reg|kennz|carte grise|immat|nummernschild|plaque|"
        "immatricul|matrícula|"
        "matricula|"
        "placa|patente|targa|kenteken|nummerplaat|numerplaat|nummerplade|rekisterinumero|"
        "rejestracyjny",
        score=60,
    ),
    PatternRule(
        id="vin",
        data_class="identifier.direct.vehicle",
        regex=r"(?<!\w)(?=\d{0,16}[A-Z])(?=[A-Z]{0,16}\d)[A-HJ-NPR-Z0-9]{17}(?!\w)",
        score=90,
        check=checks.vin,
        required=True,
        mixed=True,
    ),
    # Europe's have no check digit (ISO 3779): the region and the final digits identify
    # them.
    PatternRule(
        id="vin-europe",
        data_class="identifier.direct.vehicle",
        regex=r"(?<!\w)[S-Z][A-HJ-NPR-Z][A-HJ-NPR-Z0-9]{11}"
        r"\d{4}(?!\w)",
        score=60,
        digits=4,
        mixed=True,
        cased=True,
    ),
    # FG-441-KL, the French form since 2009 (arrêté du 9 février 2009).
    PatternRule(
        id="plate-france",
        data_class="identifier.direct.vehicle",
        regex=r"(?<![\w\-])(?!AB-123-CD)[A-HJ-NP-TV-Z]{2}-\d{3}-[A-HJ-NP-TV-Z]{2}"
        r"(?![\w\-])",
        score=60,
        digits=3,
        cased=True,
    ),
    # ZH 441 208: a canton and up to six digits, in groups; not an amount in francs.
    PatternRule(
        id="plate-switzerland",
        data_class="identifier.direct.vehicle",
        regex=rf"(?<![\w\-])(?:{_CANTONS})[ \-\u00b7]{{1,3}}[1-9]\d{{1,2}}[ '\u2019.]"
        r"(?!000)\d{3}(?![\w\-]|[ .,'\u2019]\d)",
        score=60,
        digits=5,
        cased=True,
    ),
    # A plate's shape next to a word about cars, also in lower case.
    PatternRule(
        id="plate-beside",
        data_class="identifier.direct.vehicle",
        regex=rf"(?<!\w)(?:{_CAR})(?!\w)[^\n\d]{{0,30}}(?<![\w\-])({_PLATE})(?![\w\-])|"
        rf"(?<![\w\-])(?:{_PLATE})(?![\w\-])[^\n\d]{{0,30}}(?<!\w)(?:{_CAR})(?!\w)",
        score=60,
        digits=2,
    ),
    labelled(
        "vin-labelled",
        "identifier.direct.vehicle",
        r"vin|fin|vehicle identification number|chassis (?:number|no)|"
        r"fahrgestell-?n(?:umme)?r\.?|fahrzeug-?ident(?:ifizierungs|ifikations)?-?n(?:umme)?r"
        r"\.?|n[°º] de s[eé]rie du v[eé]hicule|"
        r"num[eé]ro de ch[aâ]ssis",
        r"(?=[A-Z\-]{0,16}\d)[A-HJ-NPR-Z0-9](?:-?[A-HJ-NPR-Z0-9]){10,16}",
        words="vin|fin|vehicle ident|véhicule|vehicule|chassis|fahrgestell|fahrzeug|"
        "châssis",
        score=80,
        check=checks.vin,
    ),
)

CONTACT = (*REACH, *ACCOUNTS, *NETWORK, *THINGS)
