"""Patterns of regulated content, as data: money, health, law, export.

Nothing here runs; ``scan`` runs it. Every repetition is bounded or cannot
overlap its neighbour, so that time grows with length only.
"""

from curtilage.client import checks
from curtilage.client.pattern_rule import PatternRule, labelled

FINANCE = (
    # The whole run, however long: the check looks for a card inside it.
    PatternRule(
        id="pan",
        data_class="financial.pan",
        regex=r"\d(?:(?:\W|_){0,7}\d){11,}",
        score=50,
        check=checks.pan,
        required=True,
        gate="0",
    ),
    labelled(
        "card-labelled",
        "financial.pan",
        r"(?:credit|debit|bank|visa|master|amex|payment|"
        r"prepaid)?\s?card(?: number| no)?(?: is|:|#)|(?:visa|"
        r"mastercard|amex|pan)(?: number| no)?(?: is|:|#)",
        r"\d(?:[ \-]{0,2}\d){8,18}",
    ),
    PatternRule(
        id="pan-masked",
        data_class="financial.pan_masked",
        regex=r"(?<![\w*])(?:\d{4,6}[ \-]?)?(?:[x*•]{4}[ \-]?|"
        r"[x*•]{2}){1,4}\d{4}(?!\w)|(?<!\w)(?:ending|ends)(?: in|"
        r" with)\s\d{4}(?!\w)",
        score=60,
        gate="0",
    ),
    labelled(
        "cvv",
        "financial.cvv",
        r"cvv2?|cvc2?|cid|security code|card verification(?: value| code)?",
        r"\d{3,4}",
    ),
    labelled(
        "card-expiry",
        "financial.expiry",
        r"exp(?:iry|ires?|iration)?(?: date)?|valid (?:thru|through|until)",
        r"(?:0?[1-9]|1[0-2])\s?[/\-]\s?(?:20)?\d\d",
        score=60,
    ),
    PatternRule(
        id="card-track",
        data_class="financial.track",
        regex=r"%?B\d{12,19}\^[^^\n]{2,26}\^\d{4}|;\d{12,19}=\d{4,32}\?",
        score=95,
        gate="^=",
    ),
    PatternRule(
        id="iban",
        data_class="financial.iban",
        regex=r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?:[ \-]?[A-Z0-9]){11,30}(?![A-Za-z0-9])",
        score=70,
        check=checks.iban,
        required=True,
        gate="0",
    ),
    # A wrong check digit is a typing error, not a permission to leave (F7).
    PatternRule(
        id="iban-shape",
        data_class="financial.iban",
        regex=r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?:[ \-]?[A-Z0-9]{4}){3,7}"
        r"(?:[ \-]?[A-Z0-9]{1,3})?(?![A-Za-z0-9])",
        score=60,
        gate="0",
        cased=True,
    ),
    labelled(
        "iban-labelled",
        "financial.iban",
        r"iban",
        r"[A-Z]{2}\d{2}[ \-]?[A-Z0-9 \-]{4,34}",
    ),
    labelled(
        "account-number",
        "financial.account",
        r"(?:bank |checking |savings? |current |loan |brokerage |customer |client )?"
        r"(?:account|acct|a/c)(?: number| no\.?| num| #|#| is|:|"
        r" ending(?: in)?)|sort code|customer (?:number|no|id)|"
        r"mortgage number|loan number",
        r"\d[\d\- ]{2,22}\d",
    ),
    labelled("aba", "financial.aba", r"routing|aba|rtn|transit", r"\d{9}"),
    labelled(
        "swift", "financial.swift", r"swift|bic", r"[A-Z]{6}[A-Z0-9]{2}(?:[A-Z0-9]{3})?"
    ),
    labelled(
        "ein",
        "financial.tax_id",
        r"ein|employer id(?:entification)?(?: number)?|vat|ust-?id|tax id",
        r"[A-Z]{0,2}[\- ]?\d[\d\-. ]{5,14}\d",
    ),
    PatternRule(
        id="income",
        data_class="financial.income",
        regex=r"(?<!\w)(?:salary|income|wages?|earnings?|paycheck|bonus|pension|"
        r"(?:earn|make|makes|earns|paid)(?: about|"
        r" around)?)(?:\s\w{1,12}){0,3}\s{0,2}(?:[:=]\s?)?"
        r"[$€£]?\s?\d[\d,.]{1,12}\s?k?",
        score=60,
        gate="0",
    ),
    PatternRule(
        id="balance",
        data_class="financial.balance",
        regex=r"(?<!\w)(?:balance|net worth|savings|debts?|owe|overdraft|"
        r"mortgage)(?:\s\w{1,12}){0,3}\s{0,2}(?:[:=]\s?)?"
        r"[$€£]\s?\d[\d,.]{1,12}\s?[km]?",
        score=60,
        gate="0",
    ),
    PatternRule(
        id="credit-score",
        data_class="financial.credit_score",
        regex=r"(?<!\w)(?:credit|fico)(?: score|"
        r" rating)?(?:\s\w{1,8}){0,2}\s{0,2}[:=]?\s?[3-8]\d\d(?!\w)",
        score=65,
        gate="0",
    ),
    PatternRule(
        id="crypto-address",
        data_class="financial.crypto",
        regex=r"(?<!\w)(?:0x[0-9a-fA-F]{40}|bc1[a-z0-9]{25,59}|"
        r"[13][1-9A-HJ-NP-Za-km-z]{25,34})(?!\w)",
        score=70,
        gate="0",
        cased=True,
    ),
)

HEALTH = (
    labelled(
        "mrn",
        "health.mrn",
        r"mrn|medical record|med rec|chart|patient (?:id|number|no|#)|"
        r"hospital (?:id|number|no)|"
        r"record (?:number|no)|specimen|accession|encounter|case (?:id|number)",
        r"(?=[A-Z0-9\-]{0,20}\d{3})[A-Z0-9][A-Z0-9\-]{2,20}",
        score=80,
    ),
    labelled(
        "plan-id",
        "health.plan_id",
        r"(?:member|subscriber|policy|group|beneficiary|insurance|claim|"
        r"medicaid|medicare|"
        r"health plan|plan|mbi|prior auth(?:orization)?|referral|rx|prescription)"
        r"(?: ?(?:id|number|no\.?|#|card))",
        r"(?=[A-Z0-9\-]{0,20}\d{2})[A-Z0-9][A-Z0-9\-]{3,24}",
        score=80,
    ),
    labelled("npi", "health.npi", r"npi", r"[12]\d{9}"),
    labelled("dea", "health.dea", r"dea", r"[A-Z]{2}\d{7}"),
    PatternRule(
        id="reading",
        data_class="health.lab",
        regex=r"(?<!\w)(?:a1c|hba1c|bmi|blood pressure|bp|glucose|cholesterol|"
        r"ldl|hdl|psa|tsh|"
        r"creatinine|hemoglobin|heart rate|cd4|viral load|inr|egfr|"
        r"oxygen saturation|spo2)"
        r"(?:\s\w{1,10}){0,3}\s{0,2}[:=]?\s?\d{1,4}(?:[./]\d{1,3})?",
        score=65,
        gate="0",
    ),
    PatternRule(
        id="dose",
        data_class="health.medication",
        regex=r"(?<!\w)\d{1,4}(?:\.\d{1,3})?\s?(?:mg|mcg|µg)(?!\w)(?:/(?:ml|day|kg))?",
        score=50,
        gate="0",
    ),
    PatternRule(
        id="icd-code",
        data_class="health.condition",
        regex=r"(?<!\w)[A-TV-Z]\d[0-9AB]\.[0-9A-Z]{1,4}(?!\w)",
        score=60,
        gate="0",
        cased=True,
    ),
)

LEGAL = (
    PatternRule(
        id="docket",
        data_class="legal.docket",
        regex=r"(?<!\w)(?:case|docket|cause|matter)\s?(?:no|number|num|"
        r"#)?[.:]{0,2}\s{0,2}#?\d{1,2}[:\-]\d{2,4}[\-:]?[a-z]{1,4}[\-:]\d{2,7}",
        score=80,
        gate="0",
    ),
    PatternRule(
        id="privilege",
        data_class="legal.privilege",
        regex=r"(?<!\w)(?:attorney[ \-]client|lawyer[ \-]client|"
        r"legal(?:ly)?[ \-]privileged?|"
        r"privileged (?:and|&) confidential|solicitor[ \-]client|"
        r"work[ \-]product (?:doctrine|privilege))",
        score=75,
    ),
    PatternRule(
        id="export-control",
        data_class="export.itar",
        regex=r"(?<!\w)(?:ITAR|USML|EAR99)(?!\w)",
        score=75,
        cased=True,
    ),
    PatternRule(
        id="eccn",
        data_class="export.eccn",
        regex=r"(?<!\w)(?:ECCN\s?:?\s?)\d[A-E]\d{3}(?!\w)",
        score=80,
        gate="0",
    ),
    PatternRule(
        id="controlled-marking",
        data_class="export.cui",
        regex=r"(?<!\w)(?:CUI//|CUI\s(?:basic|specified)|controlled unclassified)",
        score=75,
    ),
    PatternRule(
        id="noforn",
        data_class="export.noforn",
        regex=r"(?<!\w)(?:NOFORN|//NF|TS//SCI|S//NF)(?!\w)",
        score=80,
        cased=True,
    ),
    PatternRule(
        id="confidential-marking",
        data_class="org.confidential",
        regex=r"(?<!\w)(?:(?:company|strictly|highly|commercial(?:ly)?|"
        r"business|internal)[ \-]confidential|"
        r"confidential (?:and|&) proprietary|proprietary (?:and|"
        r"&) confidential|internal use only|"
        r"do not (?:distribute|forward|disclose|share outside)|"
        r"trade secrets?|under nda|not for distribution|"
        r"confidential:|\[confidential\])",
        score=70,
    ),
)
