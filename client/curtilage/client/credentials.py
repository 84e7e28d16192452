"""Patterns of secrets, as data: keys, tokens, passwords, connection strings.

Shapes that vendors publish, and the ways in which people tell a password in a
sentence. Names no real key; runs nothing.
"""

from curtilage.client.pattern_rule import PatternRule

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
_VALUE = r"[^\s\"'`<>(){}\[\],;]{3,80}"
_TELL = (
    r"(?:\s{1,4}(?:is|was|will be|would be)\s{1,4}(?:now\s|still\s|"
    r"currently\s)?|\s{0,2}[:=]\s{0,2})"
)


def _key(name: str, regex: str, data_class: str = "secret.api_key") -> PatternRule:
    return PatternRule(
        id=name, data_class=data_class, regex=rf"(?<!\w){regex}", score=95, cased=True
    )


KEYS = (
    _key("aws-access-key", r"(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z0-9]{12,20}"),
    _key("github-token", r"(?:gh[pousr]_\w{20,255}|github_pat_\w{20,255})"),
    _key("gitlab-token", r"gl(?:pat|ptt|rt|dt|soat)-[\w\-]{16,64}"),
    _key("slack-token", r"xox[abeoprs]-[\w\-]{10,250}"),
    _key("slack-hook", r"(?:https?://)?hooks\.slack\.com/services/[\w/]{10,100}"),
    _key("stripe-key", r"[srp]k_(?:live|test)_\w{10,250}"),
    _key("openai-key", r"sk-(?:proj-|ant-|svcacct-|admin-|or-)?[\w\-]{16,250}"),
    _key("google-key", r"AIza[\w\-]{30,40}"),
    _key(
        "google-oauth", r"(?:ya29\.[\w\-]{20,250}|GOCSPX-[\w\-]{20,40})", "secret.token"
    ),
    _key("sendgrid-key", r"SG\.[\w\-]{16,30}\.[\w\-]{20,60}"),
    _key("twilio-key", r"(?:AC|SK)[0-9a-f]{32}"),
    _key(
        "package-token",
        r"(?:npm_\w{30,50}|pypi-[\w\-]{30,250}|rubygems_\w{40,60})",
        "secret.token",
    ),
    _key(
        "hub-token",
        r"(?:hf_\w{20,60}|r8_\w{30,50}|dckr_pat_[\w\-]{20,40})",
        "secret.token",
    ),
    _key(
        "cloud-token",
        r"(?:do[opr]_v1_[0-9a-f]{64}|dapi[0-9a-f]{32}|shp(?:at|ss|ca|"
        r"pa)_[0-9a-fA-F]{32}|lin_api_\w{30,60}|ntn_\w{30,60}|"
        r"secret_\w{30,60}|sq0[a-z]{3}-[\w\-]{20,50}|"
        r"EAA[A-Za-z0-9]{30,250}|vercel_\w{20,60}|pat-(?:na|"
        r"eu)1-[\w\-]{30,50}|key-[0-9a-f]{32}|hvs\.[\w\-]{20,120}|"
        r"tskey-[\w\-]{16,80}|glsa_\w{30,60}|PMAK-[\w\-]{30,80}|"
        r"sntrys_\w{20,200})",
    ),
    _key(
        "json-web-token",
        r"eyJ[\w\-]{8,2000}\.[\w\-]{4,4000}(?:\.[\w\-]{0,2000})?",
        "secret.token",
    ),
    _key(
        "bot-token",
        r"(?:\d{8,10}:[\w\-]{33,37}|"
        r"[MNO][\w\-]{22,28}\.[\w\-]{6}\.[\w\-]{27,40})(?![\w\-])",
        "secret.token",
    ),
    PatternRule(
        id="azure-key",
        data_class="secret.api_key",
        regex=r"(?:AccountKey|SharedAccessKey|SharedAccessSignature|"
        r"sig)=[\w+/%=\-]{20,200}",
        score=95,
        gate="=",
    ),
    PatternRule(
        id="private-key",
        data_class="secret.private_key",
        regex=r"-----\s?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|"
        r"AGE-SECRET-KEY-1\w{20,80}|PuTTY-User-Key-File",
        score=100,
        gate="-",
    ),
    PatternRule(
        id="bearer",
        data_class="secret.token",
        regex=r"(?<!\w)(?:bearer|basic|"
        r"token)\s{1,3}(?=[\w.~+/=\-]{0,60}\d)[\w.~+/=\-]{12,4000}",
        score=80,
    ),
    PatternRule(
        id="dsn",
        data_class="secret.dsn",
        regex=r"(?<!\w)[a-z][a-z0-9+.\-]{1,24}://[^\s:/@\"'<>]{0,80}:[^\s/@\"'<>]{1,120}@[\w.\-\[\]:]{1,120}",
        score=95,
        gate="@",
    ),
    PatternRule(
        id="dsn-fields",
        data_class="secret.dsn",
        regex=r"(?<!\w)(?:server|data source|"
        r"host)=[^;\n]{1,80};[^\n]{0,160}(?:password|pwd)=[^;\n]{1,80}",
        score=95,
        gate="=",
    ),
    PatternRule(
        id="key-assigned",
        data_class="secret.api_key",
        regex=r"(?:api|access|secret|private|auth|client|encryption|signing|"
        r"master|service)"
        rf"[_\- ]?(?:key|token|secret|"
        rf"id){_ASSIGN}(?=[^\s]{{0,40}}\d)([\w+/=.\-]{{8,400}})",
        score=85,
        group=1,
        gate=":=",
    ),
    PatternRule(
        id="key-told",
        data_class="secret.api_key",
        regex=rf"(?<!\w)(?:api|access|secret|license|licence|product|"
        rf"activation|recovery|encryption|auth)"
        rf"[_\- ]?(?:key|token|code|"
        rf"secret){_TELL}[\"'`]?(?=\S{{0,40}}\d)([^\s\"'`,;]{{6,400}})",
        score=75,
        group=1,
    ),
    PatternRule(
        id="seed-phrase",
        data_class="secret.private_key",
        regex=r"(?<!\w)(?:seed|recovery|mnemonic|secret|"
        r"wallet)[ \-]?(?:phrase|words|seed)?"
        r"(?: is|:| are)\s{1,3}(?:[a-z]{3,8}[ ,]{1,2}){11}[a-z]{3,8}",
        score=90,
    ),
)

PASSWORDS = (
    PatternRule(
        id="password-told",
        data_class="secret.password",
        regex=r"(?<![\w])(?:pass(?:word|code|phrase|wd)|pwd|passwort|"
        r"contraseña|mot de passe)"
        rf"(?:\s(?:for|to|of|"
        rf"on)(?:\s[\w.\-']{{1,20}}){{1,4}})?{_TELL}[\"'`\u201c\u2018]?{_NO_VALUE}({_VALUE})",
        score=80,
        group=1,
    ),
    PatternRule(
        id="password-quoted",
        data_class="secret.password",
        regex=r"(?<!\w)(?:pass(?:word|code|phrase|wd)|"
        r"pwd)(?:\s\w{1,10}){0,3}\s[\"'`\u201c\u2018][^\s\"'`\u201d\u2019]{3,80}[\"'`\u201d\u2019]",
        score=75,
    ),
    PatternRule(
        id="password-with-digit",
        data_class="secret.password",
        regex=r"(?<!\w)(?:pass(?:word|code|phrase|wd)|pwd)(?:\s(?:to|as|with|"
        r"using|like|into))?\s{1,2}"
        r"(?=[^\s]{0,40}[a-z!@#$%^&*])(?=[^\s]{0,40}\d)[^\s\"'`,;()]{5,80}",
        score=70,
        gate="0",
    ),
    PatternRule(
        id="pin",
        data_class="secret.password",
        regex=r"(?<!\w)(?:pin|passcode|otp|one[- ]time (?:code|password)|"
        r"verification code|2fa code|security code)"
        r"(?:\s(?:code|number))?(?:\s(?:is|was|to)|\s?[:=])?\s{1,2}\d{4,8}(?!\w)",
        score=80,
        gate="0",
    ),
    PatternRule(
        id="credentials-pair",
        data_class="secret.password",
        regex=r"(?<!\w)(?:credentials?|creds|login(?: details)?|"
        r"log ?in (?:with|as)|sign ?in with)(?: are| is|"
        r":)?\s{1,2}[\w.@\-]{2,40}\s?(?:/|:|\||"
        r"and)\s?(?=\S{0,20}[\d!@#$%^&*])\S{4,60}",
        score=70,
    ),
    PatternRule(
        id="command-password",
        data_class="secret.password",
        regex=r"(?:--password[= ]|--token[= ]|\s-u\s{0,2}[\w.\-]{1,40}:|"
        r"sshpass -p\s?|PGPASSWORD=|MYSQL_PWD=)(?![<${\[])\S{3,80}",
        score=80,
        gate="-=",
    ),
)

SECRETS = (*KEYS, *PASSWORDS)

OPAQUE_TOKEN = r"[A-Za-z0-9+/_\-]{24,}={0,2}"  # noqa: S105 - a pattern
HEX_TOKEN = r"(?<![0-9a-zA-Z])[0-9a-f]{32,}(?![0-9a-zA-Z])"  # noqa: S105 - a pattern
