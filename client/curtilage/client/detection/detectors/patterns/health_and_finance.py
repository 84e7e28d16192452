"""Patterns of regulated content about money and health, as data.

This module runs nothing; ``matcher`` does. Every repetition is bounded or cannot
overlap its neighbour, so that the time is linear in the length.
"""

from curtilage.client.detection.detectors.patterns import check_digits as checks
from curtilage.client.detection.detectors.patterns.rule import (
    ANY_DIGIT,
    NUMMER,
    PatternRule,
    labelled,
    numbered,
)

_AMOUNT = r"[$€£¥₹]?\s?\d[\d,.]{1,12}\s?[km]?"
_CURRENCY = r"(?:[$€£¥₹]|(?:usd|eur|gbp|chf|sek|nok|dkk|pln|czk|cad|aud)\s)"

CARDS = (
    # The whole run, of any length: the check searches it for a card of any issuer, from
    # 12 digits (Maestro) to 19 (Visa).
    PatternRule(
        id="pan",
        data_class="financial.pan",
        regex=r"\d(?:(?:\W|_){0,7}\d){11,}",
        score=50,
        check=checks.pan,
        required=True,
        digits=12,
    ),
    # Grouped as on the card: a wrong check digit is a typing error, not a permission to
    # be sent (F7).
    PatternRule(
        id="pan-shape",
        data_class="financial.pan",
        regex=r"[2-6](?<![\w.\-][2-6])\d{3}([ \-.])\d{4}\1\d{4}\1\d{4}"
        r"(?:\1\d{3})?(?!\w|[.\-]\d)|"
        r"3(?<![\w.\-]3)[47]\d\d([ \-.])\d{6}\2\d{5}(?!\w|[.\-]\d)",
        score=60,
        digits=15,
    ),
    labelled(
        "card-labelled",
        "financial.pan",
        r"(?:credit|debit|bank|visa|master|amex|payment|"
        r"prepaid)?\s?card(?: (?:number|no\.?)(?: is|:|#)?| is|:|#)|(?:visa|"
        r"master ?card|amex|american express|discover|maestro|diners|jcb|unionpay|pan)"
        r"(?: card)?(?: number| no)?(?: is|:|#)?|"
        r"(?:kredit|bank|ec-)?karten?(?:nummer|nr)|num[eé]ro de carte|"
        r"n[uú]mero de tarjeta|tarjeta|carta di credito|numero carta|"
        r"n[uú]mero do cartão|kaartnummer|numer karty|kortnummer",
        r"\d(?:[ \-]{0,2}\d){8,18}",
        words="card|visa|amex|american express|discover|maestro|diners|jcb|unionpay|"
        "pan|"
        "kartenn|karten|karte|de carte|tarjeta|carta di|numero carta|cartão|"
        "kaartnummer|"
        "numer karty|kortnummer",
        check=checks.luhn,
    ),
    # First six and last four at most: PCI DSS v4.0.1, requirement 3.4.1.
    PatternRule(
        id="pan-masked",
        data_class="financial.pan_masked",
        regex=r"(?<![\w*•#])(?:\d{4}[ \-]?(?:\d\d)?|\d{6}[ \-]?)?(?:[x*•#]{2}[ \-])?"
        r"(?:xxxx|\*\*\*\*|••••|####)[x*•# \-]{0,12}\d{4}(?!\w)|"
        r"(?<!\w)(?:ending|ends)(?: in| with)\s\d{4}(?!\w)",
        score=60,
        digits=4,
        words=("xxxx", "****", "••••", "####", "ending", "ends"),
    ),
    labelled(
        "cvv",
        "financial.cvv",
        r"cvv2?|cvc2?|cvn|csc|cid|security code|"
        r"card verification(?: value| code| number)?|prüfziffer|"
        r"cryptogramme(?: visuel)?(?: de (?:ma|la) carte)?|"
        r"code de s[eé]curit[eé]|c[oó]digo de seguridad|codice di sicurezza",
        r"\d{3,4}",
        words="cvv|cvc|cvn|csc|cid|security code|card verification|prüfziffer|"
        "cryptogramme|code de|"
        "de seguridad|sicurezza",
    ),
    labelled(
        "card-expiry",
        "financial.expiry",
        r"exp(?:iry|ires?|iration|\.)?(?: date)?|valid (?:thru|through|until|to)|"
        r"gültig bis|expire le|vence|scadenza|validade|geldig tot|ważna do",
        r"(?:0?[1-9]|1[0-2])\s?[/\-]\s?(?:20)?\d\d",
        words="exp|valid|gültig|vence|scadenza|geldig|ważna",
        score=60,
    ),
    PatternRule(
        id="card-track",
        data_class="financial.track",
        regex=r"%?B\d{12,19}\^[^^\n]{2,26}\^\d{4}|;\d{12,19}=\d{4,32}\?",
        score=95,
        gate="^=",
        digits=12,
    ),
)

ACCOUNTS = (
    PatternRule(
        id="iban",
        data_class="financial.iban",
        regex=r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?:[ \-]?[A-Z0-9]){11,30}(?![A-Za-z0-9])",
        score=70,
        check=checks.iban_first,
        required=True,
        digits=2,
        mixed=True,
    ),
    # A wrong check digit is a typing error here too.
    PatternRule(
        id="iban-shape",
        data_class="financial.iban",
        regex=r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?:[ \-]?[A-Z0-9]{4}){3,7}"
        r"(?:[ \-]?[A-Z0-9]{1,3})?(?![A-Za-z0-9])",
        score=60,
        digits=2,
        mixed=True,
        cased=True,
    ),
    labelled(
        "iban-labelled",
        "financial.iban",
        r"iban",
        r"[A-Z]{2}\d{2}[ \-]?[A-Z0-9 \-]{4,34}",
        words="iban",
        check=checks.iban,
    ),
    labelled(
        "account-number",
        "financial.account",
        r"(?:bank |checking |savings? |current |loan |brokerage |customer |client )?"
        r"(?:account|acct|a/c)(?: number| no\.?| num| #|#| is|:|"
        r" ending(?: in)?)|sort code|bsb|ifsc(?: code)?|customer (?:number|no|id)|"
        r"mortgage number|loan (?:number|no|id)|policy holder number|"
        rf"(?:konto|kto\.|kunden|kd\.|vertrags?|mitglieds?|matrikel|depot|klant|"
        rf"contract|"
        rf"rekening|bankrekening){NUMMER}|lid-?n(?:umme)?r\.?|conto corrente|c/c|"
        + numbered(
            "compte|client|contrat|adhérent|cuenta|cliente|contrato|socio|conto|"
            "contratto|conta|sócio|abonado|abbonato|assinante|empleado|funcionário|"
            "funcionario|colaborador"
        )
        + r"|matricule|numer (?:konta|rachunku)|tilinumero|[čc][ií]slo [uú][čc]tu|"
        r"bankgiro|clabe",
        r"(?=[A-Z]{0,4}\d)[A-Z]{0,4}\d[\d\- ]{2,22}\d",
        words="account|acct|a/c|sort code|bsb|ifsc|customer|mortgage|loan|"
        "policy holder|konto|kto.|kunden|kd.|vertrag|mitglied|matrikel|depot|klant|"
        "lidn|"
        "lid-n|contract|rekening|c/c|matricule|compte|client|contrat|adhérent|cuenta|"
        "socio|sócio|conto|conta|abonado|abbonato|assinante|empleado|funcionário|"
        "funcionario|colaborador|numer|tilinumero|"
        "slo účtu|slo uctu|slo učtu|slo úctu|bankgiro|clabe",
    ),
    labelled(
        "aba",
        "financial.aba",
        r"routing(?: transit)?|aba|rtn|transit",
        r"\d{9}",
        words="routing|aba|rtn|transit",
        check=checks.aba,
    ),
    labelled(
        "swift",
        "financial.swift",
        r"swift(?:[ /]?(?:bic|code))?|bic(?:[ /]?(?:swift|code))?",
        r"(?=[A-Z]{6}[A-Z]{0,4}\d)[A-Z]{6}[A-Z0-9]{2}(?:[A-Z0-9]{3})?",
        words="swift|bic",
        check=checks.swift,
    ),
    # Letters alone, too: "BIC DEUTDEFF".
    PatternRule(
        id="swift-letters",
        data_class="financial.swift",
        regex=r"(?<!\w)(?:SWIFT|BIC|Swift|Bic|swift|bic)(?:[ /-]?(?:code|Code|CODE|"
        r"BIC))?"
        r"\s?(?:is|est|ist|lautet|:|=|#)?\s?:?\s?([A-Z]{6}[A-Z0-9]{2}(?:[A-Z0-9]{3})?)(?!\w)",
        score=75,
        group=1,
        check=checks.swift,
        required=True,
        cased=True,
        words=("swift", "bic"),
    ),
    labelled(
        "ein",
        "financial.tax_id",
        r"ein|employer id(?:entification)?(?: number)?|vat(?: reg(?:istration)?)?|"
        r"ust-?id(?:nr)?|uid|tax id|tva|iva|p\.? ?iva|partita iva|btw(?:-nummer)?|moms|"
        r"cnpj|gstin|abn",
        r"[A-Z]{0,3}[\- ]?\d[\d\-. /]{5,16}\d",
        words="ein|employer id|vat|ustid|ust-id|uid|tax id|tva|iva|btw|moms|cnpj|"
        "gstin|abn",
    ),
    labelled(
        "mx-rfc",
        "financial.tax_id",
        r"rfc",
        r"[A-ZÑ&]{3,4}\d{6}[A-Z0-9]{3}",  # of a person or a company
        words="rfc",
    ),
    PatternRule(
        id="crypto-address",
        data_class="financial.crypto",
        regex=r"(?<!\w)(?:0x[0-9a-fA-F]{40}|(?:bc1|ltc1|addr1|tb1)[a-z0-9]{25,110}|"
        r"[13LMD][1-9A-HJ-NP-Za-km-z]{25,34}|T[1-9A-HJ-NP-Za-km-z]{33}|"
        r"r[1-9A-HJ-NP-Za-km-z]{32,34}|4[0-9AB][1-9A-HJ-NP-Za-km-z]{93})(?!\w)",
        score=70,
        mixed=True,
        cased=True,
    ),
)

MONEY = (
    PatternRule(
        id="income",
        data_class="financial.income",
        regex=r"(?<!\w)(?:salary|income|wages?|earnings?|paycheck|bonus|pension|"
        r"take[ -]home(?: pay)?|gehalt|einkommen|salaire|salario|stipendio|lön|løn|"
        r"(?:earn|make|makes|earns|paid|earning|making)(?: about|"
        r" around)?)(?:\s\w{1,12}){0,3}\s{0,2}(?:[:=]\s?)?"
        rf"{_AMOUNT}",
        score=60,
        gate=ANY_DIGIT,
        words=(
            "salar",
            "income",
            "wage",
            "earn",
            "paycheck",
            "bonus",
            "pension",
            "take-home",
            "take home",
            "gehalt",
            "einkommen",
            "salaire",
            "stipendio",
            "lön",
            "løn",
            "make",
            "paid",
            "making",
        ),
    ),
    # "$85,000 a year", "45k per annum"
    PatternRule(
        id="income-after",
        data_class="financial.income",
        regex=r"[$€£]\s?\d[\d,.]{1,12}\s?k?\s(?:a|per|an?) (?:year|annum|month|hour)"
        r"(?: (?:salary|before tax|after tax|gross|net))",
        score=60,
        gate="$€£",
        words=(" year ", " annum ", " month ", " hour "),
    ),
    PatternRule(
        id="balance",
        data_class="financial.balance",
        regex=r"(?<!\w)(?:balance|net worth|savings|debts?|owe[sd]?|overdraft|"
        r"overdrawn|mortgage|loan|401k|portfolio|kontostand|solde|saldo)"
        r"(?:\s\w{1,12}){0,3}\s{0,2}(?:[:=]\s?)?"
        rf"{_CURRENCY}\s?\d[\d,.]{{1,12}}\s?[km]?",
        score=60,
        gate=ANY_DIGIT,
        words=(
            "balance",
            "net worth",
            "saving",
            "debt",
            "owe",
            "overdra",
            "mortgage",
            "loan",
            "401k",
            "portfolio",
            "kontostand",
            "solde",
            "saldo",
        ),
    ),
    PatternRule(
        id="credit-score",
        data_class="financial.credit_score",
        regex=r"(?<!\w)(?:credit|fico|vantage)(?: score|"
        r" rating)?(?:\s\w{1,8}){0,2}\s{0,2}[:=]?\s?[3-8]\d\d(?!\w|[.,]\d)|"
        r"(?<!\w)[3-8]\d\d (?:credit|fico)(?: score| rating)",
        score=65,
        digits=3,
        words=("credit", "fico", "vantage"),
    ),
)

FINANCE = (*CARDS, *ACCOUNTS, *MONEY)

HEALTH = (
    labelled(
        "mrn",
        "health.mrn",
        r"mrn|mr#|medical record|med rec|medical rec|chart|patient (?:id|number|no|#)|"
        r"hospital (?:id|number|no)|unit number|uhid|"
        r"record (?:number|no)|specimen|accession|encounter|visit (?:id|number|no)|"
        rf"case (?:id|number)|(?:patienten|pat\.|fall|aufnahme|kranken(?:akten|blatt)|"
        rf"befund|"
        rf"eingangs|proben|pati[eë]nt(?:en)?|dossier|opname){NUMMER}|zis-?nummer|"
        rf"pid(?= ?[:#]? ?\d)|"
        r"ipp|iep|nip(?= ?:? ?\d{5})|nhc|hc n\.?[º°]|h\.c\.(?= ?[\dn])|"
        r"(?:n[uú]mero |n\.?º )?(?:de )?historia cl[ií]nica|expediente cl[ií]nico|"
        r"cartella clinica(?: n\.)?|(?:numero )?nosologico|prontu[aá]rio(?= ?:? "
        r"?\d{5})|processo cl[ií]nico|n[uú]mero do processo|"
        + numbered(
            "dossier(?: m[eé]dical| patient)?|patient|patiente|historia|paciente|"
            "episodio|ingreso|cartella|paziente|ricovero|processo|doente|prontu[aá]rio|"
            "atendimento|internamento"
        )
        + r"|journalnummer|numer pacjenta|potilasnumero",
        r"(?=[A-Z0-9\-]{0,20}\d{3})[A-Z0-9][A-Z0-9\-]{2,20}",
        words="mrn|mr#|medical rec|med rec|chart|patient|hospital|unit number|uhid|"
        "record|specimen|accession|encounter|visit|case|fall|pat.|aufnahme|kranken|"
        "befund|"
        "eingangs|proben|opname|zisn|zis-n|pid|dossier|ipp|iep|nip|nhc|hc n|h.c|"
        "historia|expediente|cartella|nosologico|paciente|episodio|ingreso|paziente|"
        "ricovero|processo|doente|prontuário|prontuario|atendimento|internamento|"
        "patiënt|"
        "journalnummer|pacjenta|potilasnumero",
        score=80,
    ),
    labelled(
        "plan-id",
        "health.plan_id",
        r"(?:member|subscriber|policy|group|beneficiary|insurance|claim|"
        r"medicaid|medicare|health card|ohip|"
        r"health plan|plan|mbi|hicn|prior auth(?:orization)?|referral|rx|prescription)"
        r"(?: ?(?:id|number|no\.?|#|card))|"
        rf"(?:(?:kranken)?versicherten|krankenkassen|vers\.|versicherungs?(?:schein)?|"
        rf"policen?|"
        rf"schadens?|zorgpolis|polis|verzekerden|verzekerings?|relatie|schade){NUMMER}|"
        r"zorgpolis|carte vitale|tarjeta sanitaria|tessera sanitaria|cart[aã]o sus|"
        r"ehic|ramq|"
        r"nam (?=[A-Z]{4})|nass|cipa?(?= ?:? ?(?:[A-Z]{4})?\d{5})|sns(?= ?:? ?\d{9})|"
        r"cns(?= ?:? ?\d{15})|carteirinha|seguridad social|"
        + numbered(
            "d['\u2019]?assurée?|assurée?|police|sinistre|d['\u2019]?adh[eé]rent|"
            "mutuelle|p[oó]liza|afiliado|siniestro|tarjeta sanitaria|obra social|"
            "seguridad social|polizza|sinistro|assicurato|assistito|utente|ap[oó]lice|"
            "benefici[aá]rio|cart[aã]o de sa[uú]de"
        )
        + r"|ap[oó]lice(?= ?:? ?\d{5})",
        r"(?=[A-Z0-9\-]{0,20}\d{2})[A-Z0-9][A-Z0-9\-]{3,24}",
        words="member|subscriber|policy|group|beneficiary|insurance|claim|medicaid|"
        "medicare|health card|ohip|plan|mbi|hicn|prior auth|referral|rx |rx#|rxid|rxn|"
        "rxcard|prescription|versicher|krankenkasse|vers.|polic|schaden|polis|verzeker|"
        "relatie|schade|carte vitale|sanitaria|utente|ehic|ramq|nam |nass|cip|cns|sns|"
        "carteirinha|cartão|cartao|seguridad|assuré|assure|sinist|adhérent|adherent|"
        "mutuelle|"
        "poliz|póliz|afiliado|siniestro|obra social|assicurato|assistito|apólice|"
        "apolice|"
        "beneficiário|beneficiario",
        score=80,
    ),
    labelled(
        "npi",
        "health.npi",
        r"npi|national provider identifier",
        r"[12]\d{9}",
        words="npi|national provider",
        check=checks.npi,
    ),
    labelled(
        "dea", "health.dea", r"dea", r"[A-Z][A-Z9]\d{7}", words="dea", check=checks.dea
    ),
    PatternRule(
        id="reading",
        data_class="health.lab",
        regex=r"(?<!\w)(?:a1c|hba1c|bmi|blood pressure|bp(?: is| of| was)?[ :=]|"
        r"glucose|cholesterol|"
        r"ldl|hdl|psa|tsh|triglycerides|ferritin|wbc|platelets|potassium|"
        r"creatinine|hemoglobin|haemoglobin|heart rate|cd4|viral load|inr|egfr|"
        r"oxygen saturation|spo2|blood sugar|blutdruck|tension artérielle)"
        r"(?:\s\w{1,10}){0,3}\s{0,2}[:=]?\s?\d{1,4}(?:[./]\d{1,3})?",
        score=65,
        gate=ANY_DIGIT,
        words=(
            "a1c",
            "bmi",
            "blood",
            "bp ",
            "glucose",
            "cholesterol",
            "ldl",
            "hdl",
            "psa",
            "tsh",
            "triglycerides",
            "ferritin",
            "wbc",
            "platelets",
            "potassium",
            "creatinine",
            "moglobin",
            "heart rate",
            "cd4",
            "viral load",
            "inr",
            "egfr",
            "oxygen sat",
            "spo2",
            "blutdruck",
            "tension art",
            "bp:",
            "bp=",
        ),
    ),
    PatternRule(
        id="dose",
        data_class="health.medication",
        regex=r"\d(?<![\w.]\d)\d{0,3}(?:\.\d{1,3})?\s?(?:mg|mcg|µg)(?!\w)(?:/(?:ml|"
        r"day|kg))?",
        score=50,
        gate=ANY_DIGIT,
    ),
    PatternRule(
        id="icd-code",
        data_class="health.condition",
        regex=r"(?<!\w)[A-TV-Z]\d[0-9AB]\.[0-9A-Z]{1,4}(?!\w)",
        score=60,
        gate=".",
        mixed=True,
        cased=True,
    ),
    labelled(
        "icd-labelled",
        "health.condition",
        r"icd(?:-?(?:9|10|11))?(?:-cm)?(?: code)?|diagnosis code|dx code|cpt(?: code)?",
        r"(?=[A-Z]?\d)[A-Z]?\d[0-9AB][0-9A-Z.]{0,5}",
        words="icd|diagnosis code|dx code|cpt",
    ),
)
