"""Patterns of secrets, as data: keys, tokens, passwords, connection strings.

What is told of a key or a password, in code and in a sentence; the shapes that
vendors publish stand in ``vendor_keys``. Names no real key; runs nothing.
"""

from curtilage.client.pattern_rule import ANY_DIGIT, PatternRule, listed
from curtilage.client.vendor_keys import VENDOR_KEYS

_ASSIGN = r"[\"']?\s{0,3}(?:[:=]|=>|:=)\s{0,3}[\"']?"
# Words after "password is" that are none.
_NO_VALUE = (
    r"(?!(?:not|never|no|being|a|an|the|my|your|our|too|very|wrong|incorrect|invalid|"
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
# What stands behind a variable's name in code, where no value does.
_NO_LITERAL = (
    r"(?!(?:string|str|text|none|null|true|false|empty|optional|required|process|os|"
    r"self|config|params|getenv|environ|request|input|secrets?|vault|env|var|data)"
    r"(?![\w\-])|[$%*.]|your[_\-]|change[_\-]?me)"
)
_VALUE = r"[^\s\"'`<>(){}\[\],;]{3,80}"
_TELL = (
    r"(?:\s{1,4}(?:is|was|will be|would be|ist|lautet|est|es|è|é|jest|är|"
    r"er)\s{1,4}(?:now\s|still\s|"
    r"currently\s)?|\s{0,2}[:=]\s{0,2})"
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
_TOLD_BY = (
    r"pass(?:word|code|phrase|wd|wort)|pwd|pswd|contraseña|contrasena|clave|"
    r"mot de passe|kennwort|parola|senha|wachtwoord|has[łl]o|l[öo]senord|"
    r"adgangskode|heslo|salasana|credentials? secret"
)
_PASSWORD_WORDS = (
    "password", "passcode", "passphrase", "passwd", "passwort", "pwd", "pswd",
    "contraseña", "contrasena", "clave", "mot de passe", "kennwort", "parola", "senha",
    "wachtwoord", "hasło", "haslo", "lösenord", "losenord", "adgangskode", "heslo",
    "salasana", "credential",
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
    # Short, cut or without its armour: DER's beginnings in base64.
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
    # Key stores and files of secrets, by their own words.
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
        regex=rf"(?:{'|'.join(_OWNERS)})"
        rf"[_\- ]?(?:{'|'.join(_KINDS)})"
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
        rf"activation|recovery|encryption|auth|serial|backup)"
        rf"[_\- ]?(?:key|token|code|"
        rf"secret){_TELL}[\"'`]?(?=\S{{0,40}}\d)([^\s\"'`,;]{{6,400}})",
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

PASSWORDS = (
    PatternRule(
        id="password-told",
        data_class="secret.password",
        regex=rf"(?<![\w])(?:{_TOLD_BY})"
        rf"(?:\s(?:for|to|of|"
        rf"on)(?:\s[\w.\-']{{1,20}}){{1,4}})?{_TELL}[\"'`\u201c\u2018]?{_NO_VALUE}({_VALUE})",
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
        regex=r"(?<!\w)(?:pass(?:word|code|phrase|wd)|pwd)(?:\s(?:to|as|with|"
        r"using|like|into))?\s{1,2}"
        r"(?=[^\s]{0,40}[a-z!@#$%^&*])(?=[^\s]{0,40}\d)[^\s\"'`,;()]{5,80}",
        score=70,
        gate=ANY_DIGIT,
        words=_PASSWORD_WORDS[:6],
    ),
    # POSTGRES_PASSWORD: winterfell, api_secret = "…", in settings and scripts
    PatternRule(
        id="password-variable",
        data_class="secret.password",
        regex=r"(?<![\w\-])[a-z][a-z0-9]{0,20}(?:[_\-][a-z0-9]{1,20}){0,4}[_\-]"
        r"(?:password|passwd|passphrase|pwd|pass|secret)[\"'`]?"
        rf"[ \t]?[:=][ \t]{{0,3}}[\"'`]?{_NO_VALUE}({_VALUE})",
        score=80,
        group=1,
        everywhere=True,
        gate=":=",
        words=("password", "passwd", "passphrase", "pwd", "pass", "secret"),
    ),
    # What was spaced out and is joined again by the compact view.
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
        regex=r"(?<!\w)(?:pin|passcode|otp|one[- ]time (?:code|password)|"
        r"verification code|2fa code|security code|tan|geheimzahl|code pin|"
        r"door code|gate code|alarm code|unlock code|c[oó]digo pin)"
        r"(?:\s(?:code|number))?(?:\s(?:is|was|to|ist|est|es)|"
        r"\s?[:=])?\s{1,2}\d{4,8}(?!\w)",
        score=80,
        digits=4,
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
            "geheimzahl",
            "door code",
            "gate code",
            "alarm code",
            "unlock code",
        ),
    ),
    PatternRule(
        id="credentials-pair",
        data_class="secret.password",
        regex=r"(?<!\w)(?:credentials?|creds|login(?: details)?|"
        r"log ?in (?:with|as)|sign ?in with)(?: are| is|"
        r":)?\s{1,2}[\w.@\-]{2,40}\s?(?:/|:|\||"
        r"and)\s?(?=\S{0,20}[\d!@#$%^&*])\S{4,60}",
        score=70,
        words=("credential", "creds", "login", "log in", "signin", "sign in"),
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

SECRETS = (*VENDOR_KEYS, *KEYS, *PASSWORDS)

OPAQUE_TOKEN = r"[A-Za-z0-9+/_\-]{24,}={0,2}"  # noqa: S105 - a pattern
HEX_TOKEN = r"(?<![0-9a-zA-Z])[0-9a-f]{32,}(?![0-9a-zA-Z])"  # noqa: S105 - a pattern
