"""Patterns of numbers that states issue to people, by country, as data.

Presidio has some of them (``presidio.catalog``); these are the others, and those that
it misses. Most numbers have two rules: one after a label, in the country's languages
and in English, where a failing check digit only lowers the score; and one for the bare
number, where the check must hold. This module runs nothing; ``matcher`` does. Every
repetition is bounded or cannot overlap its neighbour, so that the time is linear in the
length.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from curtilage.client.detection.detectors.patterns import check_digits as checks
from curtilage.client.detection.detectors.patterns import (
    national_check_digits as national_checks,
)
from curtilage.client.detection.detectors.patterns.number_rows import (
    SSN_LABEL,
    SSN_REACH,
)
from curtilage.client.detection.detectors.patterns.rule import (
    ANY_DIGIT,
    IS,
    PatternRule,
    labelled,
)

_GOV = "identifier.direct.gov_id."
_NINE_DIGITS = r"(?<!\d)\d(?:(?:\W|_){0,6}\d){8}(?!\d)"
_MMDD = r"(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"

UNITED_STATES = (
    PatternRule(
        id="ssn-grouped",
        data_class=_GOV + "us_ssn",
        regex=r"\d(?<![\w\-]\d)\d\d([\-. /])\d{2}\1\d{4}(?![\w\-])",
        score=85,
        check=checks.ssn,
        required=True,
        digits=9,
    ),
    # In a list or over lines: "ssn": ["536", "22", "1234"]. Issued or not.
    PatternRule(
        id="ssn-spread",
        data_class=_GOV + "us_ssn",
        regex=rf"(?:{SSN_LABEL})[^\d]{{0,{SSN_REACH}}}({_NINE_DIGITS})",
        score=90,
        group=1,
        digits=9,
        words=("ssn", "soc"),
    ),
    PatternRule(
        id="ssn-spread-before",
        data_class=_GOV + "us_ssn",
        regex=rf"({_NINE_DIGITS})[^\d]{{0,{SSN_REACH}}}(?:{SSN_LABEL})",
        score=90,
        group=1,
        digits=9,
        words=("ssn", "soc"),
    ),
    PatternRule(
        id="ssn-labelled",
        data_class=_GOV + "us_ssn",
        regex=r"(?<!\w)(?:ssn|ss ?#|social(?: security)?(?: number| no\.?|"
        r" num)?|soc sec)"
        rf"{IS}(\d(?:[^\w\n]{{0,3}}\d){{3,8}})",
        score=95,
        group=1,
        gate=ANY_DIGIT,
        words=("ssn", "ss#", "ss #", "social", "soc sec"),
    ),
    labelled(
        "itin",
        _GOV + "us_itin",
        r"itin|individual taxpayer identification number",
        r"9\d\d[\s\-]?\d\d[\s\-]?\d{4}",
        words="itin|individual taxpayer",
    ),
)

DOCUMENTS = (
    labelled(
        "passport",
        "identifier.direct.passport",
        r"passport|reisepass(?:nummer)?|passeport|pasaporte|passaporto|passaporte|"
        r"paspoort(?:nummer)?|paszport|pass-?n(?:umme)?r\.?|passinumero",
        words="passport|reisepass|passeport|pasaporte|passaport|paspoort|paszport|"
        "passn|pass-n|passinumero",
    ),
    labelled(
        "driving-licence",
        "identifier.direct.licence",
        r"driv(?:er'?s?|ing) licen[cs]e|licen[cs]e(?: number| no)|"
        r"(?:medical|nursing|professional|pilot'?s?|bar|marriage|gun|"
        r"firearms?) licen[cs]e|"
        r"f[üu]hrerschein(?:-?n(?:umme)?r\.?)?|cnh(?= ?:? ?\d{9})|permis de conduire|"
        r"permiso de conducir|"
        r"carnet de conducir|patente(?: di guida)?(?: n\.)?|carta de condução|"
        r"rijbewijs(?:nummer)?|prawo jazdy|k[øo]rekort|ajokortti|"
        r"dl(?: number| no|#|:)|permit number|certificate (?:number|no)",
        words="licence|license|driver|driving|führerschein|fuhrerschein|permis|"
        "carnet de|cnh"
        "|patente|carta de|rijbewijs|prawo jazdy|kørekort|korekort|ajokortti|dl num|"
        "dl no|dl#|dl:|permit|certificate",
    ),
    labelled(
        "official-number",
        _GOV + "other",
        r"(?:national|citizen|personal|resident|alien|voter|identity|tax(?:payer)?)"
        r"(?: (?:id|identification|identity|registration|insurance|"
        r"card))?(?: (?:number|no|card|code))?|"
        r"\w{0,20}ausweis(?:-?n(?:umme)?r\.?)?|perso(?= ?:)|"
        r"cni(?= ?[:n]| [A-Z\d]{9,12}(?!\w))|carte d'identité|"
        r"person(?:al|eels)nummer|"
        r"carta d'identità(?: n\.)?|bilhete de identidade|bi (?=\d{8}(?!\d))|"
        r"dni|documento de identidad|cartão de cidadão|"
        r"dowód osobisty|henkilötunnus|personnummer|steuernummer|numéro fiscal|"
        r"(?:nhs|nino|tin|ein|aadhaar|pesel|nif|nie|hetu|codice fiscale|steuer-?id|"
        r"visa|green card|green-card|uscis|i-94)(?: number| no)?",
        words="national|citizen|personal|resident|alien|voter|identity|tax|ausweis|"
        "perso|"
        "identité|identità|cni|bilhete|bi |personeel|dni|identidad|cidadão|dowód|"
        "henkilötunnus|personnummer|"
        "steuer|fiscal|nhs|nino|tin|ein|aadhaar|pesel|nif|nie|hetu|fiscale|visa|"
        "green card|green-card|uscis|i-94",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Number:
    """One country's number: its format, check and labels.

    Attributes:
        name: the class below ``gov_id``, and the rule's name.
        shape: as a regular expression; begins with its first character.
        label: alternatives before the number.
        words: of the labels, separated by bars, for the gate.
        check: None if there is no check digit.
        bare: the shape without a label; "" if only a label identifies it.
        bare_score: if the check of a bare number fails; 0: it is dropped.
        digits: in the number.
        data_class: if not that of ``name``.
        mixed: letters are directly next to the digits.
    """

    name: str
    shape: str
    label: str
    words: str
    digits: int
    check: Callable[[str], bool] | None = None
    bare: str = ""
    bare_score: int = 0
    data_class: str = ""
    mixed: bool = False

    def rules(self) -> Iterator[PatternRule]:
        """Yield the rules for the labelled and for the bare number."""
        name = self.name.replace("_", "-")
        data_class = self.data_class or _GOV + self.name
        yield labelled(
            name, data_class, self.label, self.shape, words=self.words, check=self.check
        )
        if self.bare:
            yield PatternRule(
                id=f"{name}-bare",
                data_class=data_class,
                regex=rf"{self.bare}(?!\w|[.\-]\d)",
                score=self.bare_score or 85,
                check=self.check,
                required=not self.bare_score,
                digits=self.digits,
                mixed=self.mixed,
            )


# The first digit of a bare number, with nothing that belongs to it before. The digit is
# written first, because ``re`` finds a digit faster than an absence.
def _first(digit: str) -> str:
    return rf"{digit}(?<![\w.\-]{digit})"


_NUMBERS = (
    # --- Europe ---------------------------------------------------------------
    _Number(
        name="fr_nir",
        shape=r"[1-478][ .]?\d\d[ .]?\d\d[ .]?(?:\d\d|2[ab])[ .]?\d{3}[ .]?\d{3}"
        r"(?:[ .\-]{0,3}\d\d)?",
        bare=_first("[1-478]") + r"[ .]?\d\d[ .]?(?:0\d|1[0-2]|[2-9]\d)[ .]?(?:\d\d|"
        r"2[ab])[ .]?\d{3}[ .]?\d{3}[ .\-]{0,3}\d\d",
        bare_score=60,
        label=r"nir|num[eé]ro de s[eé]curit[eé] sociale|s[eé]curit[eé] sociale|"
        r"n° ?s[eé]cu|num[eé]ro s[eé]cu|insee",
        words="nir|sécurité|securite|sécurite|securité|sécu|secu|insee",
        check=national_checks.fr_nir,
        digits=13,
    ),
    _Number(
        name="nl_bsn",
        shape=r"\d{2,4}[ .]?\d{2,3}[ .]?\d{3}",
        label=r"bsn|burger ?service ?nummer|sofi-?nummer|dutch (?:id|citizen) number|"
        r"citizen service number",
        words="bsn|burger|sofi|dutch|citizen service",
        check=national_checks.nl_bsn,
        digits=9,
    ),
    _Number(
        name="be_nrn",
        shape=r"\d\d[. ]?\d\d[. ]?\d\d[\- ]?\d{3}[. ]?\d\d",
        bare=_first(r"\d") + r"\d\.?[0-5]\d\.?[0-3]\d-?\d{3}\.?\d\d",
        label=r"rijksregister(?:nummer)?|num[eé]ro national|registre national|insz|"
        r"niss|"
        r"belgian national (?:number|id)",
        words="rijksregister|national|insz|niss",
        check=national_checks.be_nrn,
        digits=11,
    ),
    _Number(
        name="pt_nif",
        shape=r"[1-9]\d{2}[ .]?\d{3}[ .]?\d{3}",
        label=r"(?:nif|contribuinte|n[uú]mero de identifica[cç][aã]o fiscal|"
        r"n[uú]mero de contribuinte)(?: pt| portugal)?",
        words="nif|contribuinte|número de|numero de|número d|numero d",
        check=national_checks.pt_nif,
        digits=9,
    ),
    _Number(
        name="ie_pps",
        shape=r"\d{7}[ ]?[A-W][A-IW]?",
        bare=_first(r"\d") + r"\d{6}[A-W][A-IW]?",
        label=r"pps[ns]?|personal public service|uimhir psp",
        words="pps|personal public|uimhir",
        check=national_checks.ie_pps,
        mixed=True,
        digits=7,
    ),
    _Number(
        name="dk_cpr",
        shape=r"\d{6}[ \-]?\d{4}",
        bare=r"(?:0(?<![\w.\-]0)[1-9]|[12](?<![\w.\-][12])\d|3(?<![\w.\-]3)[01])"
        r"(?:0[1-9]|1[0-2])\d\d-\d{4}",
        bare_score=70,
        label=r"cpr(?:[ -]?n(?:umme)?r)?|personnummer|danish (?:id|cpr)",
        words="cpr|personnummer|danish",
        check=national_checks.dk_cpr,
        digits=10,
    ),
    _Number(
        name="cz_rc",
        shape=r"\d{6}[ ]?/?[ ]?\d{3,4}",
        bare=_first(r"\d")
        + r"\d(?:[05][1-9]|[27]\d|[1368][0-2])(?:0[1-9]|[12]\d|3[01])/"
        r"\d{3,4}",
        bare_score=65,
        label=r"rodn[eé] [cč][ií]slo|r\. ?[cč]\.|birth number|"
        r"czech (?:id|personal) number",
        words="rodn|birth number|czech|r.c|r.č|r. c|r. č",
        check=national_checks.cz_rc,
        digits=9,
    ),
    _Number(
        name="sk_rc",
        shape=r"\d{6}[ ]?/?[ ]?\d{3,4}",
        label=r"slovak (?:id|birth|personal) number|slovensk[eé] rodn[eé] [cč][ií]slo|"
        r"sk rodn[eé] [cč][ií]slo",
        words="slovak|slovensk|sk rodn",
        check=national_checks.cz_rc,
        digits=9,
    ),
    _Number(
        name="ro_cnp",
        shape=r"[1-9]\d{12}",
        bare=_first("[1-9]") + rf"\d\d{_MMDD}\d{{6}}",
        label=r"cnp|cod numeric personal|romanian (?:id|personal) (?:number|code)",
        words="cnp|cod numeric|romanian",
        check=national_checks.ro_cnp,
        digits=13,
    ),
    _Number(
        name="at_svnr",
        shape=r"\d{4}[ \-/]?\d{6}",
        bare=_first("[1-9]")
        + r"\d{3}[ \-]?(?:0[1-9]|[12]\d|3[01])(?:0[1-9]|1[0-5])\d\d",
        label=r"sv-?n(?:umme)?r|sozialversicherungs-?n(?:umme)?r|versicherungsnummer|"
        r"austrian (?:insurance|social security) number",
        words="svnr|sv-nr|svnummer|sv-nummer|versicherung|austrian",
        check=national_checks.at_svnr,
        digits=10,
    ),
    _Number(
        name="gr_amka",
        shape=r"\d{6}[ \-]?\d{5}",
        bare=r"(?:0(?<![\w.\-]0)[1-9]|[12](?<![\w.\-][12])\d|3(?<![\w.\-]3)[01])"
        r"(?:0[1-9]|1[0-2])\d{7}",
        label=r"amka|\u03b1\u03bc\u03ba\u03b1|\u03b1\.\u03bc\.\u03ba\.\u03b1\.?",
        words="amka|\u03b1\u03bc\u03ba\u03b1|\u03b1.\u03bc",
        check=national_checks.gr_amka,
        digits=11,
    ),
    _Number(
        name="gr_afm",
        shape=r"(?:EL)?\d{9}",
        label=r"afm|\u03b1\u03c6\u03bc|\u03b1\.\u03c6\.\u03bc\.?|"
        r"greek tax (?:id|number)",
        words="afm|\u03b1\u03c6\u03bc|\u03b1.\u03c6|greek tax",
        check=national_checks.gr_afm,
        data_class="financial.tax_id",
        digits=9,
    ),
    _Number(
        name="hu_taj",
        shape=r"\d{3}[ \-]?\d{3}[ \-]?\d{3}",
        label=r"taj(?:[ -]?sz[aá]m)?|hungarian (?:social security|insurance) number",
        words="taj|hungarian",
        check=national_checks.hu_taj,
        digits=9,
    ),
    _Number(
        name="bg_egn",
        shape=r"\d{10}",
        bare=_first(r"\d") + r"\d(?:[024][1-9]|[135][0-2])(?:0[1-9]|[12]\d|3[01])\d{4}",
        label=r"egn|егн|единен граждански номер|bulgarian (?:id|citizen) number",
        words="egn|егн|единен|bulgarian",
        check=national_checks.bg_egn,
        digits=10,
    ),
    _Number(
        name="hr_oib",
        shape=r"(?:HR)?\d{11}",
        label=r"oib|osobni identifikacijski broj|croatian (?:id|tax) number",
        words="oib|osobni|croatian",
        check=national_checks.hr_oib,
        digits=11,
    ),
    _Number(
        name="ee_ik",
        shape=r"[1-8]\d{10}",
        bare=_first("[1-8]") + rf"\d\d{_MMDD}\d{{4}}",
        label=r"isikukood|estonian (?:id|personal) code",
        words="isikukood|estonian",
        check=national_checks.baltic,
        digits=11,
    ),
    _Number(
        name="lt_ak",
        shape=r"[1-9]\d{10}",
        label=r"asmens kodas|lithuanian (?:id|personal) code",
        words="asmens|lithuanian",
        check=national_checks.baltic,
        digits=11,
    ),
    _Number(
        name="lv_pk",
        shape=r"\d{6}[ \-]?\d{5}",
        bare=r"(?:0(?<![\w.\-]0)[1-9]|[12](?<![\w.\-][12])\d|3(?<![\w.\-]3)[0-2])"
        r"\d\d\d\d-[0-2]\d{4}",
        bare_score=65,
        label=r"personas kods|latvian (?:id|personal) code",
        words="personas kods|latvian",
        check=national_checks.lv_pk,
        digits=11,
    ),
    _Number(
        name="si_emso",
        shape=r"\d{13}",
        bare=r"(?:0(?<![\w.\-]0)[1-9]|[12](?<![\w.\-][12])\d|3(?<![\w.\-]3)[01])"
        r"(?:0[1-9]|1[0-2])[09]\d{8}",
        label=r"em[sš]o|jmbg|slovenian (?:id|citizen) number",
        words="emso|emšo|jmbg|slovenian",
        check=national_checks.si_emso,
        digits=13,
    ),
    _Number(
        name="no_fnr",
        shape=r"\d{6}[ ]?\d{5}",
        bare=_first("[0-7]") + r"\d(?:[04][1-9]|[15][0-2])\d\d[ ]?\d{5}",
        label=r"f[øo]dselsnummer|f[øo]dselsnr|fnr|d-?nummer|"
        r"norwegian (?:id|birth|national) number",
        words="fødsels|fodsels|fnr|nummer|norwegian",
        check=national_checks.no_fnr,
        digits=11,
    ),
    _Number(
        name="ch_ahv",
        shape=r"756[. ]?\d{4}[. ]?\d{4}[. ]?\d\d",
        bare=_first("7") + r"56[. ]?\d{4}[. ]?\d{4}[. ]?\d\d",
        bare_score=75,
        label=r"ahv(?:[- ]?n(?:umme)?r)?|avs|navs(?:13)?|swiss social security number",
        words="ahv|avs|swiss",
        check=national_checks.ch_ahv,
        digits=13,
    ),
    # --- elsewhere ------------------------------------------------------------
    _Number(
        name="br_cpf",
        shape=r"\d{3}\.?\d{3}\.?\d{3}[\-. ]?\d\d",
        bare=_first(r"\d") + r"\d\d\.\d{3}\.\d{3}-\d\d",
        bare_score=75,
        label=r"cpf|cadastro de pessoas? f[ií]sicas?",
        words="cpf|cadastro",
        check=national_checks.br_cpf,
        digits=11,
    ),
    _Number(
        name="cn_ric",
        shape=r"\d{17}[\dX]",
        bare=_first("[1-9]") + rf"\d{{5}}(?:19|20)\d\d{_MMDD}\d{{3}}[\dX]",
        bare_score=75,
        label=r"身份证(?:号码?|号)?|公民身份号码|chinese (?:id|identity)(?: card)?|"
        r"resident identity card",
        words="身份证|公民身|chinese|resident identity",
        check=national_checks.cn_ric,
        digits=17,
    ),
    _Number(
        name="mx_curp",
        shape=r"[A-Z]{4}\d{6}[HMX][A-Z]{5}[A-Z0-9]\d",
        bare=r"(?<![\w.\-])[A-Z][AEIOUX][A-Z]{2}\d\d"
        + _MMDD
        + r"[HMX][A-Z]{5}[A-Z0-9]\d",
        bare_score=85,
        label=r"curp|clave [uú]nica de registro",
        words="curp|clave única|clave unica",
        check=national_checks.mx_curp,
        mixed=True,
        digits=6,
    ),
    _Number(
        name="il_tz",
        shape=r"\d{5,8}-?\d",
        label=r"teudat zehut|mispar zehut|t\.z\.?|תעודת זהות|מספר זהות|ת\.ז\.?|"
        r"israeli (?:id|identity)(?: card)?",
        words="zehut|t.z|תעודת|מספר|ת.ז|israeli",
        check=national_checks.il_tz,
        digits=9,
    ),
    _Number(
        name="jp_my_number",
        shape=r"\d{4}[ \-]?\d{4}[ \-]?\d{4}",
        label=r"my number(?: card)?|individual number|マイナンバー|個人番号",
        words="my number|individual number|マイナンバー|個人番号",
        check=national_checks.jp_my_number,
        digits=12,
    ),
    _Number(
        name="ng_nin",
        shape=r"\d{4}[ \-]?\d{3}[ \-]?\d{4}",
        label=r"nin|nimc|bvn|nigerian (?:id|national identification)",
        words="nin|nimc|bvn|nigerian",
        digits=11,
    ),
    _Number(
        name="nz_ird",
        shape=r"\d{2,3}[ \-]?\d{3}[ \-]?\d{3}",
        label=r"ird|inland revenue",
        words="ird|inland revenue",
        check=national_checks.nz_ird,
        digits=8,
    ),
    _Number(
        name="in_aadhaar",
        shape=r"[2-9]\d{3}[ \-]?\d{4}[ \-]?\d{4}",
        label=r"aadh?aar|uidai|आधार",
        words="aadhaar|aadaar|uidai|आधार",
        check=checks.verhoeff,
        digits=12,
    ),
)

# Between the groups of a number with letters, which no run of digits would include.
_GAP = r"(?:\W|_){0,3}"
_BARE_GAP = r"[ .\-/_\u2013]?"


def _grouped(*groups: str, gap: str = _GAP) -> str:
    return gap.join(groups)


_LETTERED_NUMBERS = (
    _Number(
        name="uk_nhs",
        shape=_grouped(r"\d{3}", r"\d{3}", r"\d{4}"),
        label=r"nhs(?: n(?:umber|o)\.?)?|chi number|health and care number",
        words="nhs|chi number|health and care",
        check=national_checks.uk_nhs,
        digits=10,
    ),
    _Number(
        name="uk_nino",
        shape=_grouped("[A-Z]{2}", r"\d\d", r"\d\d", r"\d\d", "[A-D]"),
        bare=r"(?<![\w.\-])(?-i:[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z])"
        r"([ .\-/_\u2013])\d\d\1\d\d\1\d\d\1(?-i:[A-D])",
        bare_score=85,
        label=r"ni(?: n(?:umber|o)\.?)?|nino|national insurance(?: n(?:umber|o)\.?)?",
        words="",
        digits=6,
    ),
    _Number(
        name="de_tax_id",
        shape=_grouped(r"[1-9]\d", r"\d{3}", r"\d{3}", r"\d{3}"),
        label=r"steuer-?id(?:entifikationsnummer)?(?:-?nr\.?)?|steuer-?identnummer|"
        r"idnr\.?|id-nr\.?|tin|tax id|steuerliche identifikationsnummer",
        words="steuer|idnr|id-nr|tin|tax id",
        check=national_checks.de_idnr,
        digits=11,
    ),
    _Number(
        name="de_svnr",
        shape=_grouped(r"\d\d", r"\d{6}", "[A-Z]", r"\d{3}"),
        bare=_first(r"\d") + rf"\d{_BARE_GAP}\d{{6}}{_BARE_GAP}[A-Z]{_BARE_GAP}\d{{3}}",
        label=r"(?:sozial|renten)versicherungs-?n(?:umme)?r\.?|sv-?n(?:umme)?r\.?|"
        r"rvnr\.?|(?:social|pension) insurance n(?:umber|o)\.?",
        words="versicherung|sv-n|svn|rvnr|insurance",
        check=national_checks.de_svnr,
        digits=8,
    ),
    _Number(
        name="de_kvnr",
        data_class="health.plan_id",
        shape=_grouped("[A-Z]", r"\d{3}", r"\d{3}", r"\d{3}"),
        bare=rf"(?<![\w.\-])[A-Z]{_BARE_GAP}\d{{3}}{_BARE_GAP}\d{{3}}{_BARE_GAP}\d{{3}}",
        label=r"kvnr\.?|(?:kranken)?versicherten-?n(?:umme)?r\.?|krankenkassen-?nr\.?|"
        r"insurance (?:number|no\.?|id)",
        words="kvnr|versicherten|krankenkasse|insurance",
        check=national_checks.de_kvnr,
        digits=9,
    ),
    _Number(
        name="es_nif",
        shape=_grouped(r"\d{1,2}", r"\d{3}", r"\d{3}", "[A-Z]"),
        bare=_first(r"\d") + rf"\d\.?\d{{3}}\.?\d{{3}}{_BARE_GAP}[A-HJ-NP-TV-Z]",
        label=r"dni|nif|documento nacional de identidad|n[uú]mero de identidad|"
        r"spanish (?:id|tax) number",
        words="dni|nif|identidad|spanish",
        check=national_checks.es_nif,
        digits=8,
    ),
    _Number(
        name="es_nie",
        shape=_grouped("[XYZ]", r"\d", r"\d{3}", r"\d{3}", "[A-Z]"),
        bare=rf"(?<![\w.\-])[XYZ]{_BARE_GAP}\d\.?\d{{3}}\.?\d{{3}}{_BARE_GAP}"
        "[A-HJ-NP-TV-Z]",
        label=r"nie|n[uú]mero de (?:identidad de )?extranjer[oía]+|"
        r"foreigner'?s? number",
        words="nie|extranjer|foreigner",
        check=national_checks.es_nif,
        digits=7,
    ),
    _Number(
        name="it_cf",
        shape=_grouped(
            "[A-Z]{3}",
            "[A-Z]{3}",
            r"[A-Z0-9]{2}[A-EHLMPR-T][A-Z0-9]{2}",
            r"[A-Z][A-Z0-9]{3}[A-Z]",
        ),
        bare=r"(?<![\w.\-])"
        + _grouped(
            "[A-Z]{3}",
            "[A-Z]{3}",
            r"\d\d[A-EHLMPR-T]",
            r"\d\d",
            r"[A-Z]\d{3}",
            "[A-Z]",
            gap=_BARE_GAP,
        ),
        label=r"codice fiscale|c\.? ?f\.?|tessera sanitaria|italian tax code|tax code",
        words="",
        check=national_checks.it_cf,
        digits=3,
    ),
    _Number(
        name="pt_cc",
        data_class=_GOV + "other",
        shape=_grouped(r"\d{8}", r"\d", r"[A-Z0-9]{2}\d"),
        bare=_first(r"\d") + rf"\d{{7}}{_BARE_GAP}\d{_BARE_GAP}[A-Z0-9]{{2}}\d",
        label=r"cart[aã]o de cidad[aã]o|cc|citizen card",
        words="",
        check=national_checks.pt_cc,
        digits=9,
    ),
    _Number(
        name="pl_pesel",
        shape=_grouped(r"\d\d", r"\d\d", r"\d\d", r"\d{5}"),
        bare=_first(r"\d") + rf"\d{_BARE_GAP}\d\d{_BARE_GAP}\d\d{_BARE_GAP}\d{{5}}",
        label=r"(?:nr |numer )?pesel|polish (?:id|national) number|national id",
        words="pesel|polish|national id",
        check=national_checks.pl_pesel,
        digits=11,
    ),
    _Number(
        name="se_pnr",
        shape=_grouped(r"(?:\d\d)?\d{6}", r"\d{4}"),
        bare=_first(r"\d") + r"\d(?:\d\d)?\d{4}[\-+ ]\d{4}",
        label=r"personnummer|p(?:ers)?nr\.?|personal (?:identity )?number|"
        r"samordningsnummer",
        words="personnummer|pnr|persnr|personal|samordning",
        check=national_checks.se_pnr,
        digits=10,
    ),
    _Number(
        name="fi_hetu",
        shape=_grouped(r"\d{6}", "[-+A-FU-Y]", r"\d{3}[0-9A-Y]"),
        bare=_first("[0-3]") + r"\d{5} ?[-+A-FU-Y] ?\d{3}[0-9A-FHJ-NPR-Y]",
        label=r"henkil[öo]tunnus|hetu|personal identity code|personbeteckning",
        words="henkil|hetu|personal identity|personbeteckning",
        check=national_checks.fi_hetu,
        digits=6,
    ),
    _Number(
        name="ca_sin",
        shape=_grouped(r"\d{3}", r"\d{3}", r"\d{3}"),
        label=r"sin|nas|social insurance(?: number)?|"
        r"num[eé]ro d['\u2019]assurance sociale",
        words="sin|nas|social insurance|assurance",
        check=national_checks.ca_sin,
        digits=9,
    ),
    _Number(
        name="au_tfn",
        shape=_grouped(r"\d{3}", r"\d{3}", r"\d{2,3}"),
        label=r"tfn|tax file(?: number)?",
        words="tfn|tax file",
        check=national_checks.au_tfn,
        digits=8,
    ),
)

LETTERED = (
    PatternRule(
        id="nino",
        data_class=_GOV + "uk_nino",
        regex=r"(?<!\w)(?![dfiquv])[a-z](?![dfiquvo])[a-z]\s?\d{2}\s?\d{2}\s?\d{2}\s?[a-d](?!\w)",
        score=85,
        digits=6,
    ),
    PatternRule(
        id="in-pan",
        data_class=_GOV + "in_pan",
        regex=r"(?<!\w)[A-Z]{3}[ABCFGHJLPT][A-Z]\d{4}[A-Z](?!\w)|"
        r"(?<!\w)(?-i:[A-Z]{3}[ABCFGHJLPT][A-Z])[ \-]\d{4}[ \-](?-i:[A-Z])(?!\w)",
        score=60,
        digits=4,
    ),
    PatternRule(
        id="fiscal-code",
        data_class=_GOV + "it_cf",
        regex=r"(?<!\w)[A-Z]{6}\d{2}[A-EHLMPR-T]\d{2}[A-Z]\d{3}[A-Z](?!\w)",
        score=85,
        digits=3,
        mixed=True,
    ),
)

IDENTITY = (
    *UNITED_STATES,
    *DOCUMENTS,
    *LETTERED,
    *(rule for number in (*_NUMBERS, *_LETTERED_NUMBERS) for rule in number.rules()),
)

# The labels of every number, in its country's languages and in English.
NATIONAL_LABEL = "|".join(each.label for each in (*_NUMBERS, *_LETTERED_NUMBERS))
