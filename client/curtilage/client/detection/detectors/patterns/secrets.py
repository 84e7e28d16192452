"""Patterns of secrets, as data: keys, tokens, passwords, connection strings.

For statements of a key or a password, in code and in prose; the shapes that vendors
publish are in ``vendor_tokens``. Contains no real key; runs nothing.
"""

import re

from curtilage.client.detection.detectors.patterns.rule import (
    ANY_DIGIT,
    PatternRule,
    listed,
)
from curtilage.client.detection.detectors.patterns.vendor_tokens import VENDOR_KEYS
from curtilage.client.detection.detectors.told_numbers import DIGITS
from curtilage.client.detection.wordlists import read_data

_ASSIGN = r"[\"']?\s{0,3}(?:[:=]|=>|:=)\s{0,3}[\"']?"
# Words after "password is" that are not passwords.
_NO_ENGLISH_VALUE = (
    r"(?!(?:not|never|no|being|a|an|the|my|your|our|too|very|wrong|incorrect|invalid|"
    r"valid|"
    r"expired|expiring|required|lost|stolen|forgotten|blocked|locked|disabled|still|"
    r"also|now|already|working|correct|right|secure|safe|strong|weak|good|bad|in|on|"
    r"and|or|to|for|it|that|this|what|how|why|when|where|who|used|needed|unknown|"
    r"hidden|encrypted|hashed|stored|sent|saved|entered|set|reset|changed|been|so|"
    r"don'?t|doesn'?t|you|i|we|they|always|only|just|usually|must|should|string|str|"
    r"none|null|true|false|empty|optional|all|short|long|easy|hard|different|same|"
    r"supposed|rejected|accepted|declined|compromised|visible|case|at|is|was|there|"
    r"if|with|as|from|by|of|one|something|somehow|going|gone|getting|made|input|"
    r"request\w*|getenv|environ|os|process|self|data|form|user|args|params|config|"
    r"password|passwd|pass|pwd|secret|token|key|value|text|varchar|char)\b)"
)
# After a variable's name in code, where there is no value: a type, a call, another
# variable, a placeholder.
_NO_LITERAL = (
    r"(?!(?:string|str|secretstr|text|varchar|char|int|integer|float|number|bool|"
    r"boolean|bytes|object|list|dict|array|any|none|null|nil|undefined|true|false|"
    r"empty|optional|required|process|os|sys|self|this|app|config\w*|settings|params|"
    r"props|args|opts|options|kwargs|getenv|environ|request|req|input|form|user|body|"
    r"event|ctx|secrets?|vault|env|var|data|value|field|models|joi|yup|faker|new|await|"
    r"const|function|lambda|hash\w*|bcrypt|crypto|sha\w*|md5|base64|hmac|uuid\w*|"
    r"random|passwords?|passwd|pass|pwd|tokens?|the|an?|is|are|was|to|for|of|in|not)"
    r"(?![\w\-])|[$%*.<{/&\\]|your[_\-]|change[_\-]?me|[\w.\-]{1,80}[(\[])"
)
# The same of other languages: la contraseña es incorrecta.
_NO_VALUE_ABROAD = listed("""
vergessen abgelaufen falsch richtig zu nicht nur noch schon ungültig gültig korrekt
erforderlich gesperrt verloren abhanden weg sicher unsicher kurz lang leer neu alt
bekannt unbekannt geändert zurückgesetzt der die das dem ein eine mein dein ihr sein
in im auf mit für von bei und oder dass was wie wo kein keine immer gestohlen gehackt
verschlüsselt trop incorrect expiré oublié perdu faux obligatoire requis invalide
valide correct bloqué le la les un une mon ton son votre dans sur avec pour que qui ce
pas plus déjà nouveau sécurisé court long changé réinitialisé volé toujours très
incorrecta demasiado caducada olvidada perdida errónea inválida válida correcta
bloqueada obligatoria muy mi tu su el los una con para por si no más ya nueva vieja
segura corta larga trabajar errata sbagliata scaduta dimenticata troppo corretta
bloccata obbligatoria molto mia tua sua il lo con per non più già nuova sicura debole
corta lunga verlopen vergeten verkeerd onjuist te niet kwijt ongeldig geldig juist
geblokkeerd verplicht het de een mijn jouw uw met voor nog al nieuw veilig zwak
veranderd gewijzigd muito errada incorreta expirada expirou esquecida inválida válida
bloqueada obrigatória minha tua sua o uma com não já nova segura fraca curta longa
""")
_NO_VALUE = rf"(?!(?:{'|'.join(_NO_VALUE_ABROAD)})(?!\w)){_NO_ENGLISH_VALUE}"
_VALUE = r"[^\s\"'`<>(){}\[\],;]{3,80}"
_IS_VALUE = (
    r"(?:\s{1,4}(?:is|was|will be|would be|ist|lautet|est|es|è|é|jest|är|"
    r"er)\s{1,4}(?:now\s|still\s|currently\s)?|\s{0,2}[:=]\s{0,2})"
)


_KINDS = ("key", "token", "secret", "id")
_OWNERS = listed("""
api access secret private auth client encryption signing master service consumer app
deploy webhook
""")
_JOINED = tuple(
    f"{owner}{sign}{kind}"
    for owner in _OWNERS
    for sign in ("_", "-", " ", "")
    for kind in _KINDS
)
_LABEL = (
    r"pass(?:word|code|phrase|wd|wort)|pwd|pswd|"
    # With what it opens: la contraseña del wifi es ...
    r"(?:contrase[ñn]a|senha|palavra-passe)(?: d(?:el?|e la|e mi|[oa]) [\w\-]{2,14})?|"
    r"mot de passe|kennwort|wachtwoord|has[łl]o|"
    # Everyday words, and short ones: a value with a digit must follow.
    r"(?:clave|parola|mdp|code secret)(?=\W[^\n]{0,24}\d)|l[öo]senord|"
    r"adgangskode|heslo|salasana|credentials? secret"
)
_PASSWORD_WORDS = (
    "password", "passcode", "passphrase", "passwd", "passwort", "pwd", "pswd",
    "contraseña", "contrasena", "clave", "mot de passe", "kennwort", "parola",
    "senha", "palavra-passe", "mdp", "code secret", "wachtwoord", "hasło", "haslo",
    "lösenord", "losenord", "adgangskode", "heslo", "salasana", "credential",
)  # fmt: skip

KEYS = (
    PatternRule(
        id="private-key",
        data_class="secret.private_key",
        regex=r"-----\s?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|"
        r"AGE-SECRET-KEY-1\w{20,80}|PuTTY-User-Key-File",
        score=100,
        gate="-",
        words=("private key", "age-secret-key-1", "putty-user-key-file"),
    ),
    # Short, cut or without its armour: the beginnings of DER in base64.
    PatternRule(
        id="private-key-body",
        data_class="secret.private_key",
        regex=r"(?<![\w+/])(?:MII[BCEJ][\w+/]{2}IBA[AD]|MHcCAQEE|MHQCAQEE|MIGHAgEAMBMG|"
        r"MIGEAgEAMBAG|MC4CAQAwBQYDK2V|b3BlbnNzaC1rZXktdjE)[\w+/=\s]{8,4000}",
        score=95,
        cased=True,
        words=(
            "iba",
            "mhccaqee",
            "mhqcaqee",
            "mighageambmg",
            "migeageambag",
            "mc4caqawbqydk2v",
            "b3blbnnzac1rzxktdje",
        ),
    ),
    # Key stores and files of secrets, by their typical words.
    PatternRule(
        id="secret-file",
        data_class="secret.private_key",
        regex=r"[\"']?private_key(?:_id)?[\"']?\s?:\s?[\"'][\w\-]{20,80}|"
        r"kind: ?Secret\b[^\x00]{0,300}?\b(?:string)?data:\s{1,20}"
        r"[\w.\-]{1,60}:\s?\S{4,400}",
        score=90,
        words=("private_key", "kind: secret", "kind:secret"),
        cased=False,
    ),
    PatternRule(
        id="bearer",
        data_class="secret.token",
        regex=r"(?<!\w)(?:bearer|basic|"
        r"token)\s{1,3}(?=[\w.~+/=\-]{0,60}\d)[\w.~+/=\-]{12,4000}",
        score=80,
        gate=ANY_DIGIT,
        words=("bearer", "basic", "token"),
    ),
    PatternRule(
        id="dsn",
        data_class="secret.dsn",
        regex=r"://(?<=\w\w://)[^\s:/@\"'<>]{0,80}:[^\s/@\"'<>]{1,120}@[\w.\-\[\]:]{1,120}",
        score=95,
        gate="@",
        words=("://",),
    ),
    PatternRule(
        id="dsn-fields",
        data_class="secret.dsn",
        regex=r"(?<!\w)(?:server|data source|"
        r"host)=[^;\n]{1,80};[^\n]{0,160}?(?:password|pwd)=[^;\n]{1,80}",
        score=95,
        gate="=",
        words=("password=", "pwd="),
    ),
    # host=db user=app password=… ; sqlplus scott/tiger@orcl
    PatternRule(
        id="dsn-words",
        data_class="secret.dsn",
        regex=r"(?<!\w)(?:user(?:name|id)?|"
        r"uid)=[^\s;,]{1,60}[\s;,]{1,3}(?:[a-z_]{2,20}="
        r"[^\s;,]{1,80}[\s;,]{1,3}){0,4}(?:password|pwd|pass)=[^\s;,\"']{2,80}|"
        r"(?<!\w)sqlplus\s[\w.\-]{1,40}/[^\s@/]{2,60}@",
        score=90,
        gate="=@",
        words=("password=", "pwd=", "pass=", "sqlplus"),
    ),
    PatternRule(
        id="key-assigned",
        data_class="secret.api_key",
        regex=rf"(?:{'|'.join(_OWNERS)})[_\- ]?(?:{'|'.join(_KINDS)})"
        rf"{_ASSIGN}(?=[^\s]{{0,40}}\d)([\w+/=.\-]{{8,400}})",
        score=85,
        group=1,
        gate=":=",
        words=_JOINED,
    ),
    PatternRule(
        id="key-told",
        data_class="secret.api_key",
        regex=rf"(?<!\w)(?:api|access|secret|license|licence|product|"
        rf"activation|recovery|encryption|auth|serial|backup)[_\- ]?(?:key|token|code|"
        rf"secret){_IS_VALUE}[\"'`]?(?=\S{{0,40}}\d)([^\s\"'`,;]{{6,400}})",
        score=75,
        group=1,
        gate=ANY_DIGIT,
        words=("key", "token", "code", "secret"),
    ),
    PatternRule(
        id="seed-phrase",
        data_class="secret.private_key",
        regex=r"(?<!\w)(?:seed|recovery|mnemonic|secret|"
        r"wallet)[ \-]?(?:phrase|words|seed)?"
        r"(?: is|:| are)\s{1,3}(?:[a-z]{3,8}[ ,]{1,2}){11}[a-z]{3,8}",
        score=90,
        words=("seed", "recovery", "mnemonic", "secret", "wallet"),
    ),
)

_PINS = (
    r"pin|passcode|otp|one[- ]time (?:code|password)|"
    r"verification code|2fa code|security code|tan|geheimzahl|code pin|"
    r"door code|gate code|alarm code|unlock code|c[oó]digo pin|pin-?code|"
    r"(?:tür|zugangs|toegangs)-?code|code secret|code d['\u2019](?:accès|entrée)|"
    r"digicode|codice (?:pin|di accesso|segreto)|c[oó]digo de (?:acceso|accesso|acesso)"
)
# What a code opens, in the covered languages, before or after the word.
_DOORS = (
    r"doors?|gates?|alarms?|safe|vault|lock|entrance|"
    r"puerta|portal|port[aã]o|verja|alarma|caja fuerte|candado|"
    r"cofre|cadeado|porte|portail|portillon|alarme|coffre(?:-fort)?|immeuble|cadenas|"
    r"porta|portone|cancello|allarme|cassaforte|lucchetto|"
    r"(?:haus|garten)?t[üu]r|tor|alarmanlage|safe|tresor|(?:zahlen)?schloss|"
    r"(?:voor)?deur|poort|alarm|kluis|slot"
)
_DOOR_WORDS = (
    "code", "codice", "código", "codigo", "combination", "combinaci",
    "combinaison", "combinazione", "combina", "kombination", "combinatie",
)  # fmt: skip
# Digits dictated one by one: after the name of a code, three are enough.
_SPOKEN_DIGIT = "|".join(
    dict.fromkeys(
        (
            *listed("oh zero one two three four five six seven eight nine"),
            *DIGITS,
            *listed("eins eine zwo één una une uma duas meia"),
        )
    )
)
# What such digits are dictated for.
_CODES = (
    r"pin|pin-?code|pincode|geheimzahl|cvc|cvv|(?:t[üu]r|alarm|safe|tresor|zugangs|deur|"
    r"poort|kluis|door|gate|pass)-?code|code|c[oó]digo|codice"
)
# Verbs of programs, followed by words that may be numbers.
_PROGRAM = (
    r"\s(?:that|which|to|with|has|prints?|shows?|qui|affiche|avec|che|con|que|com|"
    r"imprime|stampa|zeigt|der|das|mit|hat|dat|met|toont)\s"
)
_TIMES = (
    "double|triple|doppelt?e?|zweimal|deux fois|doble|dos veces|doppio|dubbele?|duplo"
)
_PAUSES = (
    r"spaces?|gap|blank|then|next|dash|hyphen|pause|new line|leerzeichen|lücke|abstand|"
    r"dann|danach|strich|bindestrich|weiter|neue zeile|espace|tiret|puis|ensuite|blanc|"
    r"à la ligne|espacio|gui[oó]n|(?:y )?luego|después|hueco|nueva línea|spazio|"
    r"trattino|poi|quindi|dopo|vuoto|a capo|spatie|streepje|(?:en )?dan|daarna|"
    r"nieuwe regel|"
    r"espaço|traço|(?:e )?depois|a seguir|nova linha"
)

PASSWORDS = (
    PatternRule(
        id="door-code",
        data_class="secret.password",
        regex=r"(?<!\w)(?:code|codice|c[oó]digo|combination|combinaci[oó]n|"
        r"combinaison|combinazione|combina[cç][aã]o|kombination|combinatie)\s"
        r"(?<!error code )(?<!status code )(?:\w{1,5}['\s\u2019]){1,3}"
        rf"(?:{_DOORS})(?!\w)(?:\s[\w'\-]{{1,20}}){{0,4}}?"
        r"(?:\s(?:is|was|ist|lautet|est|es|è|é)\s|\s?[:=]\s?)"
        r"\d(?:[ .\-]?\d){3,7}(?![\w%]|\s(?:lines|bytes|bits|edition)\b)|"
        r"(?<!\w)(?:(?:haus|garten)?tür|tor|alarm|safe|tresor|(?:voor)?deur|poort|kluis)"
        r"-?code(?:\s[\w'\-]{1,20}){0,4}?"
        r"(?:\s(?:is|was|ist|lautet)\s|\s?[:=]\s?|\s)\d(?:[ .\-]?\d){3,7}(?![\w%])",
        score=80,
        digits=4,
        spoken=True,
        words=_DOOR_WORDS,
    ),
    PatternRule(
        id="pin-in-words",
        data_class="secret.password",
        regex=rf"(?<!\w)(?:{_CODES})(?!\w|{_PROGRAM})"
        rf"(?:[ ,:=\-]{{1,3}}[\w'\u2019]{{1,16}}){{0,6}}?"
        rf"[ ,:=\-]{{1,3}}(?:(?:{_TIMES}) )?(?:{_SPOKEN_DIGIT})"
        rf"(?:[ ,\-]{{1,3}}(?:(?:{_PAUSES})[ ,]{{1,3}}){{0,2}}"
        rf"(?:(?:{_TIMES}) )?(?:{_SPOKEN_DIGIT})){{2,8}}(?!\w)",
        score=75,
        words=("pin", "geheimzahl", "cvc", "cvv", "code", "código", "codigo", "codice"),
    ),
    PatternRule(
        id="password-told",
        data_class="secret.password",
        regex=rf"(?<![\w])(?:{_LABEL})(?:\s(?:for|to|of|"
        rf"on)(?:\s[\w.\-']{{1,20}}){{1,4}})?{_IS_VALUE}[\"'`\u201c\u2018]?{_NO_VALUE}({_VALUE})",
        score=80,
        group=1,
        everywhere=True,
        words=_PASSWORD_WORDS,
    ),
    PatternRule(
        id="password-quoted",
        data_class="secret.password",
        regex=r"(?<!\w)(?:pass(?:word|code|phrase|wd)|"
        r"pwd)(?:\s\w{1,10}){0,3}\s[\"'`\u201c\u2018][^\s\"'`\u201d\u2019]{3,80}[\"'`\u201d\u2019]",
        score=75,
        words=_PASSWORD_WORDS[:6],
    ),
    PatternRule(
        id="password-with-digit",
        data_class="secret.password",
        regex=r"(?<!\w)(?:pass(?:word|code|phrase|wd|wort)|pwd|mdp|mot de passe|"
        r"kennwort|"
        r"contraseña|senha|palavra-passe|wachtwoord)(?:\s(?:to|as|with|using|like|"
        r"into))?\s{1,2}"
        r"(?=[^\s]{0,40}[a-z!@#$%^&*])(?=[^\s]{0,40}\d)[^\s\"'`,;()]{5,80}",
        score=70,
        gate=ANY_DIGIT,
        words=_PASSWORD_WORDS,
    ),
    # Text that was spaced out and joined again by the compact reading.
    PatternRule(
        id="password-run-together",
        data_class="secret.password",
        regex=r"(?:password|passphrase|passcode|passwd)(?:is|was|:|=)"
        r"(?=\S{0,40}[\d!@#$%^&*])[^\s\"'`,;(){}\[\]<>]{4,60}",
        score=75,
        everywhere=True,
        words=("password", "passphrase", "passcode", "passwd"),
    ),
    # "use hunter2 as the password", "hunter2 is my password"
    PatternRule(
        id="password-after",
        data_class="secret.password",
        regex=r"(?<![^\s\"'`])(?=\S{0,40}\d)(?=\S{0,40}[a-z])[^\s\"'`,;(){}\[\]<>]{5,60}[\"'`]?"
        r"\s(?:is|as|was)\s(?:my|the|his|her|our|their|a|its)\s(?:\w{2,12}\s){0,2}"
        r"(?:password|passcode|passphrase|pwd|wifi key)(?!\w)",
        score=75,
        gate=ANY_DIGIT,
        words=("password", "passcode", "passphrase", "pwd", "wifi key"),
    ),
    PatternRule(
        id="pin",
        data_class="secret.password",
        regex=rf"(?<!\w)(?:{_PINS})"
        r"(?:\s(?:code|number))?(?:(?:\s(?:is|was|to|ist|lautet|est|es|è|é))?\s{1,2}|"
        r"\s?[:=]\s{0,2})\d{4,8}[a-d]?(?!\w)|"
        r"(?<!\w)(?:pin(?: code| number)?|passcode|(?:door|gate|alarm|unlock|security) "
        r"code|code secret)"
        r"\s(?:for|of|on|to|at|der|des|zur|zum|meiner|von|aus|de|du|für)"
        r"(?:\s[\w'\-]{1,20}){1,5}?(?:\s(?:is|was|ist|lautet|est)|\s?[:=])"
        r"\s{1,2}\d{4,8}(?!\w)",
        score=80,
        digits=4,
        spoken=True,
        words=(
            "pin",
            "passcode",
            "otp",
            "one-time",
            "one time",
            "verification code",
            "2fa code",
            "security code",
            "tan",
            *(
                "geheimzahl",
                "code pin",
                "türcode",
                "tür-code",
                "zugangs",
                "toegangs",
                "digicode",
            ),
            *(
                "code secret",
                "code d",
                "codice",
                "de acceso",
                "de accesso",
                "de acesso",
            ),
            "door code",
            "gate code",
            "alarm code",
            "unlock code",
        ),
    ),
    PatternRule(
        id="credentials-pair",
        data_class="secret.password",
        regex=r"(?<!\w)(?:credentials?|creds|login(?: details)?|zugangsdaten|"
        r"identifiants|"
        r"credenciales|credenziali|inloggegevens|credenciais|log ?in (?:with|as)|sign "
        r"?in with)(?: are| is|:)?\s{1,2}[\w.@\-]{2,40}\s?(?:/|:|\||"
        r"and)\s?(?=\S{0,20}[\d!@#$%^&*])\S{4,60}",
        score=70,
        words=(
            "credential",
            "creds",
            "login",
            "log in",
            "signin",
            "sign in",
            "zugangsdaten",
            "identifiants",
            "credenc",
            "credenzi",
            "inloggegevens",
        ),
    ),
    PatternRule(
        id="command-password",
        data_class="secret.password",
        regex=r"(?:--password[= ]|--token[= ]|[ ]-u[ ]{0,2}[\w.\-]{1,40}:|"
        r"sshpass -p\s?|PGPASSWORD=|MYSQL_PWD=)(?![<${\[])\S{3,80}",
        score=80,
        gate="-=",
        words=(
            "--password",
            "--token",
            " -u",
            "sshpass -p",
            "pgpassword=",
            "mysql_pwd=",
        ),
    ),
)

# The sign between a setting's name and its value, and names of secret settings.
_SETS = r"[\"'`]?\]?[ \t]{0,3}(?:=>|:=|[:=])[ \t]{0,3}"
_LETTER_AND_DIGIT = r"(?=[^\s\"'`,;]{0,60}\d)(?=[^\s\"'`,;]{0,60}[a-z])"
_SETTING = (
    r"(?:(?<=[a-z0-9_.\-])(?:password|passwd|passphrase)|"
    r"(?<=[_.\-])(?:pass|pwd|pw|psk|secret)|(?<![a-z])secret_key(?:_base)?|"
    r"(?-i:(?<=[a-z0-9])(?:Pass|Pwd|Pw|Secret)))"
)
# A quoted word that is only a placeholder.
_NO_QUOTED = (
    r"(?![\"'`](?:[$%*.<{/&\\]|x{3}|your[_\-]|change[_\-]?me|(?:my|the|user|new|db)?"
    r"[_\-]?(?:password|passwd|pass|pwd|secret|username|string|text|none|null)[\"'`]))"
)
_QUOTED = r"[\"'`][^\s\"'`]{3,120}[\"'`]"

SETTINGS = (
    # db_password = "…", dbPass: a1b2, API_SECRET: with-a-dash
    PatternRule(
        id="password-variable",
        data_class="secret.password",
        regex=rf"{_SETTING}{_SETS}(?:(?=[\"'`]){_NO_QUOTED}{_QUOTED}|{_NO_LITERAL}"
        rf"(?=[^\s\"'`,;]{{0,60}}[a-z])(?=[^\s\"'`,;(){{}}\[\]<>]{{0,60}}[\d!@#%^~\-])"
        rf"{_VALUE})",
        score=80,
        gate=":=",
    ),
    # In capitals, like environment variables: the value may be a plain word.
    PatternRule(
        id="password-environment",
        data_class="secret.password",
        regex=r"(?-i:(?<=[A-Z0-9]_)(?:PASSWORD|PASSWD|PASSPHRASE|PASS|PWD|PW|SECRET))"
        rf"(?:=|:[ \t]{{1,3}}){_NO_LITERAL}{_VALUE}",
        score=80,
        gate=":=",
    ),
    # db_pass: winterfell, alone on its line
    PatternRule(
        id="password-line",
        data_class="secret.password",
        regex=rf"{_SETTING}(?:=|:[ \t]{{1,3}}){_NO_LITERAL}"
        rf"(?-i:[a-z0-9]){_VALUE}(?=[ \t]{{0,8}}(?:[\r\n]|\Z))",
        score=75,
        gate=":=",
    ),
    # name: DB_PASSWORD, value: …; define("DB_PASS", "a1b2c3"); ENV DB_PASS a1b2c3
    PatternRule(
        id="password-named",
        data_class="secret.password",
        regex=rf"(?:(?<!\w)(?:password|passwd|passphrase)|{_SETTING})[\"'`]?(?:"
        r"[,;}]?\s{0,20}[\"']?value[\"']?\s{0,3}[:=]\s{0,3}[\"']?"
        rf"{_NO_LITERAL}{_VALUE}|"
        r"(?:\s{0,2},\s{0,3}(?=[\"'])|[ \t]{1,8}|[ \t]{0,8}\|[ \t]{0,8}|"
        r":[ \t]{0,4}\r?\n[ \t]{1,12}|\s{0,2}[(:=]\s{0,2}[\[(]?(?=[\"']))[\"'`]?"
        rf"{_NO_LITERAL}{_LETTER_AND_DIGIT}[^\s\"'`<>(){{}}\[\],;|]{{5,80}})",
        score=75,
    ),
    # pass: a1b2c3, psk=…
    PatternRule(
        id="password-short",
        data_class="secret.password",
        regex=r"(?<![\w\-.$@/])(?:pass|pwd?|psk|mdp|ww|creds?|credentials?|secret)"
        rf"{_SETS}[\"'`]?{_NO_LITERAL}{_LETTER_AND_DIGIT}[^\s\"'`<>(){{}}\[\],;]{{5,80}}",
        score=75,
        gate=":=",
    ),
    PatternRule(
        id="token-variable",
        data_class="secret.token",
        regex=rf"(?<![a-z])(?:token|jwt|secret|secret_key(?:_base)?){_SETS}[\"'`]?"
        rf"{_NO_LITERAL}{_LETTER_AND_DIGIT}[\w+/=.~\-]{{10,400}}",
        score=75,
        gate=":=",
    ),
    # aws_secret_access_key wJalr…: separated by spaces only
    PatternRule(
        id="key-spaced",
        data_class="secret.api_key",
        regex=r"(?<=[a-z])_(?:key|token|secret)[ \t]{1,8}(?-i:(?=\S{0,40}[a-z])"
        r"(?=\S{0,40}[A-Z])(?=\S{0,40}[A-Z0-9]\S{0,40}[A-Z0-9]))[\w+/=]{16,400}(?![\w(])",
        score=75,
        words=("_key", "_token", "_secret"),
    ),
    # mysql -u root -p…, net user bob … /add, curl --user bob:…
    PatternRule(
        id="command-credential",
        data_class="secret.password",
        regex=r"(?<!\w)(?:mysql\w{0,10}|mariadb)(?=[ ])[^\n|;]{0,120}?(?-i:[ ]-p)[\"']?"
        r"(?![$<{\s\"'])\S{3,80}|"
        r"(?<!\w)net user\s{1,3}[^\s/]{1,40}\s{1,3}(?![/*$<{])\S{3,80}[ ]{1,3}/|"
        r"(?<!\w)(?:curl|wget)(?=[ ])[^\n|;]{0,160}?[ ](?:--(?:proxy-)?user|-u)[ =]"
        r"{1,2}[\"']?[^\s:$<{\"']{1,60}:(?![$<{])[^\s\"']{3,80}|"
        r"(?<!\w)echo\s[\"']?(?!\$)[^\s\"'|]{3,120}[\"']?\s{0,3}\|\s{0,3}"
        r"(?:sudo (?:-S|chpasswd)|chpasswd|passwd --stdin)|"
        r"[ ](?-i:-U)[ ]?[\"']?[\w.\\/\-]{1,60}%[^\s\"'%]{3,80}|"
        r"convertto-securestring (?:-string )?[\"'](?!\$)[^\s\"']{3,80}|"
        r"(?<!\w)(?:redis-cli(?=[ ])[^\n|;]{0,80}?(?-i:[ ]-a)|docker login(?=[ ])"
        r"[^\n|;]{0,80}?(?-i:[ ]-p)|(?:un)?zip(?=[ ])[^\n|;]{0,80}?(?-i:[ ]-P))"
        r"[ ]{1,2}(?![$<{\-])\S{3,80}|"
        r"--from-literal[= ][\"']?[\w.\-]{1,60}=(?![$<{])[^\s\"']{3,120}",
        score=80,
        gate="-/|",
        words=(
            "mysql",
            "mariadb",
            "net user",
            "curl",
            "wget",
            "echo",
            " -u",
            "securestring",
            "redis-cli",
            "docker login",
            "zip",
            "--from-literal",
        ),
    ),
    # IDENTIFIED BY …, requirepass …
    PatternRule(
        id="password-statement",
        data_class="secret.password",
        regex=r"(?<!\w)identified(?: with [\w'\"]{1,40})? by (?:password )?"
        r"(?:[\"'][^\s\"']{3,80}[\"']|(?=[^\s;]{0,60}\d)[^\s\"';<>${}]{4,80})|"
        r"(?<!\w)(?:requirepass|masterauth|rootpw(?: --plaintext)?|bindpw|"
        r"enable secret(?: \d)?|ansible_become_pass)[ \t=:]{1,8}[\"']?"
        r"(?=\S{0,60}[\d!@#$%^&*])[^\s\"'<>${}]{4,120}",
        score=80,
        words=(
            "identified",
            "requirepass",
            "masterauth",
            "rootpw",
            "bindpw",
            "enable secret",
            "ansible_become_pass",
        ),
    ),
    # The last argument of a call to connect or to log in.
    PatternRule(
        id="call-credential",
        data_class="secret.password",
        regex=r"(?:connect|getconnection|"
        r"mysqli)\(\s{0,4}(?:[\"'][^\"'\n]{0,120}[\"']\s{0,4},"
        rf"\s{{0,4}}){{2}}{_NO_QUOTED}{_QUOTED}|"
        r"(?:login|authenticate|wifi\.begin|"
        r"auth\s?=\s?)\(\s{0,4}[\"'][^\"'\n]{1,120}[\"']\s{0,4},"
        rf"\s{{0,4}}{_NO_QUOTED}{_QUOTED}",
        score=75,
        gate="(",
        words=("connect", "mysqli", "login", "auth", "wifi.begin"),
    ),
)

_NAMES = read_data("curtilage.client.detection.detectors.patterns", "key_names.toml")


def _any_of(text: str) -> str:
    # A blank inside an entry is in brackets, so that entries are split at the others.
    return "|".join(re.split(r"\s(?!\])", text.strip()))


_SURE = _any_of(_NAMES["stems"]["sure"])
_STEM = f"{_SURE}|{_any_of(_NAMES['stems']['others'])}"
_GIVEN = _any_of(_NAMES["stems"]["given"])
_GIVEN_WORDS = ("log", "daten", "identifiants", "creden", "gegevens")
_OWNER = _any_of(_NAMES["owners"]["names"])
_NETWORK = _any_of(_NAMES["owners"]["networks"])
# Words about a key other than its value: WPA2, base64, an iPhone 14.
_NO_KEY = (
    r"(?!(?:wpa|802|aes|rsa|ed25519|x25519|oauth|uuid|http|base\d|sha|md5|hmac|utf|v\d{1,2}(?!\w)|"
    r"(?:python|html|css|es|php|java|node|react|vue|angular|django)\d|"
    r"iphone|ipad|ios|android|windows|win\d|macos|galaxy|version|\d+-?(?:bit|stellig|"
    r"chars?|caract|zeichen|digits?))|\d+(?:st|nd|rd|th|er|e|h|min|ghz|mhz|px|x)(?!\w))"
)
# A letter with a digit or a mark inside, as in no word.
_KEY_VALUE = (
    r"(?=[^\s\"'`,;]{0,60}[a-z])(?=[^\s\"'`,;<>]{0,60}\d|[a-z]{2,20}"
    r"(?:[!#$%&*+~_]|-[a-z]{2,20}-)[a-z])[^\s\"'`<>(){}\[\],;]{5,80}"
)
# After a colon, a word alone is enough.
_KEY_WORD = (
    r"(?:(?<=[:=])|(?<=[:=] )|(?<=[:=][\"'])|(?<=[:=] [\"']))[^\W\d_]{6,40}"
    r"(?=[\"']?\s{0,4}(?:\Z|[\n.,;]|(?:and|und|et|y|e|en)\s))"
)
# A bracket or a pronoun may precede the verb: "(it is", "c'est", "das ist".
_SAYS = (
    r"(?:\s{1,3}\(?(?:(?:it|this|that|es|das|het|dit|dat|ce|ça)\s)?"
    r"(?:it['\u2019]s|is|was|ist|war|lautet|hei(?:ß|ss)t|c['\u2019]est|est|es|era|[èé]|luidt)"
    r"(?:\s(?:now|still|jetzt|nun|maintenant|ahora|adesso|nu|agora))?\s{1,3}|"
    r"\s{0,2}(?:[:=]|=>|->|\u2192)\s{0,3}|\s{1,3}\(?)[\"'`\u201c\u201e\u00ab\u2018]?"
)
# These codes are not keys: Fehlercode, source code.
_NO_NUMBER = (
    r"(?<![^\W_])(?<!error )(?<!status )(?<!source )(?<!zip )(?<!qr )"
    r"(?!fehler|status|quell|post|farb)"
)
_NEAR = r"(?:[ _\-'\u2019]{1,2}[^\W\d_]{1,10}){0,4}?[ _\-'\u2019]{0,2}"
# Words joined by a mark, with digits: an invented key. A dash or a dot is also in
# names, so the digits must be at the end.
_MADE_UP = (
    r"(?<![\w./@:\-])(?:(?=\S{0,60}\d)(?=\S{0,60}[a-z])[^\W_]{2,20}"
    r"(?:[!#$%&*+~][^\W_]{1,20}){1,3}|[^\W\d_]{3,20}[_.\-][^\W\d_]{3,20}\d{2,5})"
    r"[!?#$%&*+]?(?![\w(/@\-]|[.:]\w)"
)
_BETWEEN = r"[^\n.?!]{0,60}?"
_KEY_WORDS = (
    *(
        "pass",
        "kennwort",
        "zugang",
        "schlüssel",
        "schluessel",
        "schlussel",
        "geheimnis",
    ),
    *("mdp", "code", "secret", "contrase", "wachtwoord", "toegang", "senha", "palavra"),
    *("parola", "sleutel", "clé", "cle", "clave", "llave", "chiave", "chave", "key"),
    *("token", "código", "codigo", "codice", "pwd", "psk", "pin", "phrase", "frase"),
    *("geheim", "wachtzin"),
)

NAMED_KEYS = (
    # WLAN-Schlüssel ist …, clé du wifi : …, the key for the guest network is …
    PatternRule(
        id="key-of-network",
        data_class="secret.password",
        regex=rf"{_NO_NUMBER}[^\W\d_]{{0,12}}?(?:(?:{_OWNER})s?{_NEAR}(?:{_SURE})|"
        rf"(?:{_SURE}){_NEAR}(?:{_OWNER})|"
        rf"(?:{_OWNER})s?[ _\-]?(?:{_STEM})|(?:{_STEM}){_NEAR}(?:{_OWNER})|"
        rf"(?:{_NETWORK}){_NEAR}(?:{_STEM}))(?![^\W_]){_SAYS}{_NO_KEY}{_NO_VALUE}"
        rf"{_NO_LITERAL}({_KEY_VALUE}|{_KEY_WORD})",
        score=80,
        group=1,
        words=_KEY_WORDS,
    ),
    # der Code fürs WLAN im Ferienhaus lautet …; mot de passe (wifi) : …; wifi: …
    PatternRule(
        id="key-near-network",
        data_class="secret.password",
        regex=rf"{_NO_NUMBER}[^\W\d_]{{0,12}}?(?:"
        rf"(?:{_STEM}|{_GIVEN})(?![^\W_]){_BETWEEN}(?<![^\W_])[^\W\d_]{{0,12}}?"
        rf"(?:{_NETWORK}){_BETWEEN}|"
        rf"(?:{_NETWORK})(?:{_BETWEEN}(?<![^\W_])|[^\W\d_]{{0,12}}?)"
        rf"(?:{_STEM}|{_GIVEN})(?![^\W_]){_BETWEEN}|"
        rf"(?:w-?lan|wi-?fi|hotspot)(?![^\W_]){_SAYS})({_MADE_UP})",
        score=80,
        group=1,
        gate=ANY_DIGIT,
        words=(*_KEY_WORDS, *_GIVEN_WORDS, "lan", "wifi", "wi-fi", "hotspot"),
    ),
    # wifi_sleutel = "…", claveApi: …, "mot-de-passe-app": "…", SECRET_CLIENT=…
    PatternRule(
        id="key-by-name",
        data_class="secret.password",
        regex=rf"(?<![^\W_])(?:[a-z0-9]{{1,20}}[_.\-]){{0,3}}?(?:"
        rf"(?:[a-z0-9]{{0,20}}?[_\-]?)(?:{_SURE})(?:[_\-]?[a-z0-9]{{1,20}}){{0,3}}?|"
        rf"[a-z0-9]{{0,20}}?(?:(?:{_OWNER})s?[_\-]?(?:{_STEM})|"
        rf"(?:{_STEM})[_\-]?(?:{_OWNER}))(?:[_\-]?[a-z0-9]{{1,20}})?)"
        rf"{_SETS}[\"'`]?{_NO_LITERAL}{_NO_KEY}({_KEY_VALUE})",
        score=80,
        group=1,
        gate=":=",
        words=_KEY_WORDS,
    ),
)

SECRETS = (*VENDOR_KEYS, *KEYS, *PASSWORDS, *SETTINGS, *NAMED_KEYS)

OPAQUE_TOKEN = r"[A-Za-z0-9+/_\-]{24,}={0,2}"  # noqa: S105 - a pattern
HEX_TOKEN = r"(?<![0-9a-zA-Z])[0-9a-f]{32,}(?![0-9a-zA-Z])"  # noqa: S105 - a pattern
