"""Patterns of content that is confidential by law or contract, as data.

Dockets, privilege, export control, markings. This module runs nothing; ``matcher``
does. Every repetition is bounded or cannot overlap its neighbour, so that the time is
linear in the length.
"""

from curtilage.client.detection.detectors.patterns.rule import (
    ANY_DIGIT,
    NUMMER,
    PatternRule,
    labelled,
    numbered,
)

LEGAL = (
    PatternRule(
        id="docket",
        data_class="legal.docket",
        regex=r"(?<!\w)(?:case|docket|cause|matter|civil action)\s?(?:no|nos|number|"
        r"num|"
        r"#)?[.:]{0,2}\s{0,2}#?\d{1,2}[:\-]\d{2,4}[\-:]?[a-z]{1,4}[\-:]\d{2,7}",
        score=80,
        gate=ANY_DIGIT,
        words=("case", "docket", "cause", "matter", "civil action"),
    ),
    # 1:20-cv-01234-ABC alone; C-311/18 and T-540/15 of the European courts.
    PatternRule(
        id="docket-bare",
        data_class="legal.docket",
        regex=r"\d(?<![\w\-]\d):\d\d-(?:cv|cr|mc|mj|md|bk|ap)-\d{4,6}(?!\d)|"
        r"\d(?<![\w\-]\d)\d?-(?:cv|cr|bk)-\d{4,6}(?!\d)",
        score=80,
        digits=4,
        words=("-cv-", "-cr-", "-mc-", "-mj-", "-md-", "-bk-", "-ap-"),
    ),
    labelled(
        "docket-labelled",
        "legal.docket",
        r"docket (?:no\.?|number|#)|court file (?:no\.?|number)|case file (?:no\.?|"
        r"number)|aktenzeichen|az[.:]|geschäftszeichen|gz:|"
        rf"(?:geschäfts|verfahrens|zaak|rol|parket|rekest){NUMMER}|"
        r"r\.g\.(?:n\.r\.)?|rg:|rg (?=n[.°º]|\d{2,5}/)|n[°º.] ?rg |"
        + numbered(
            "rôle|procédure|parquet|expediente|autos|procedimiento|"
            "diligencias|ruolo|procedimento(?: penale| civile)?|fascicolo|pratica|"
            "sentenza|autos|inqu[eé]rito"
        )
        + r"|(?:expediente|autos|procedimiento ordinario|diligencias previas|"
        r"processo(?: n\.?[º°])?)(?= \d{1,7}[/\-.]\d)|sygn(?:atura)? akt|"
        r"m[åa]lnummer",
        r"(?=[A-Z0-9 /.\-]{0,20}\d)[A-Z0-9][A-Z0-9/.\-]{0,10}"
        r"(?:[ ][A-Z0-9/.\-]{1,8}){0,3}",
        words="docket|court file|case file|aktenzeichen|az.|az:|geschäfts|gz:|"
        "verfahrens|"
        "zaak|rol|parket|rekest|r.g|rg |rg:|rôle|procédure|parquet|expediente|autos|"
        "procedim|diligencias|ruolo|fascicolo|pratica|sentenza|inquérito|inquerito|"
        "processo|"
        "akt|målnummer|malnummer",
    ),
    PatternRule(
        id="privilege",
        data_class="legal.privilege",
        regex=r"(?<!\w)(?:attorney[ \-]client|lawyer[ \-]client|attorney[ \-]work[ \-]"
        r"product|attorneys'? eyes only|litigation privilege|"
        r"legal(?:ly)?[ \-]privileged?|without prejudice(?: and| communication| save)|"
        r"privileged (?:and|&) confidential|solicitor[ \-]client|"
        r"confidential settlement communication|anwaltsgeheimnis|secret professionnel|"
        r"secreto profesional|work[ \-]product (?:doctrine|privilege))",
        score=75,
        words=(
            "attorney",
            "lawyer",
            "litigation privilege",
            "legal",
            "without prejudice",
            "privileged",
            "solicitor",
            "settlement comm",
            "anwaltsgeheimnis",
            "secret professionnel",
            "secreto profesional",
            "work product",
            "work-product",
        ),
    ),
    PatternRule(
        id="export-control",
        data_class="export.itar",
        regex=r"(?<!\w)(?:ITAR|USML|EAR99|EAR-99|22 CFR (?:Part )?12[0-9]|"
        r"15 CFR (?:Part )?7[3-7]\d)(?!\w)|"
        r"(?<!\w)(?i:international traffic in arms|united states munitions list|"
        r"technical data controlled)(?!\w)",
        score=75,
        cased=True,
        words=(
            "itar",
            "usml",
            "ear99",
            "ear-99",
            " cfr ",
            "traffic in arms",
            "munitions list",
            "technical data",
        ),
    ),
    # With its category: USML, Category XI, paragraph c.
    PatternRule(
        id="usml-category",
        data_class="export.itar",
        regex=r"(?<!\w)(?:USML|munitions list),?\s(?:cat(?:egory|\.)?)\s[IVX]{1,5}"
        r"(?:\([a-z]\))?",
        score=85,
        words=("usml", "munitions list"),
    ),
    PatternRule(
        id="eccn",
        data_class="export.eccn",
        regex=r"(?<!\w)(?:ECCN|export control classification(?: number)?)"
        r"(?:\s(?:is|of|no\.?|number))?\s?:?\s?\d[A-E]\d{3}(?:\.[a-z])?(?!\w)",
        score=80,
        gate=ANY_DIGIT,
        words=("eccn", "export control"),
    ),
    # 5A002.a, with its paragraph or its description.
    PatternRule(
        id="eccn-bare",
        data_class="export.eccn",
        regex=r"(?<!\w)[0-9][A-E][069]\d\d(?:\.[a-z](?:\.\d{1,2})?(?!\w)|"
        r"(?= (?:controlled|classification|classified|item|license|licence)))",
        score=75,
        digits=3,
        mixed=True,
        cased=True,
    ),
    PatternRule(
        id="controlled-marking",
        data_class="export.cui",
        regex=r"(?<!\w)(?:CUI//|CUI\s(?:basic|specified)|\(CUI\)|"
        r"controlled unclassified|"
        r"SP-(?:EXPT|CTI|PRVCY)|distribution statement [B-F](?!\w)|"
        r"for official use only|//FOUO)",
        score=75,
        words=(
            "cui",
            "controlled unclass",
            "sp-expt",
            "sp-cti",
            "sp-prvcy",
            "distribution statement",
            "official use only",
            "//fouo",
        ),
    ),
    PatternRule(
        id="noforn",
        data_class="export.noforn",
        regex=r"(?<!\w)(?:NOFORN|//NF|TS//SCI|S//NF|REL TO USA)(?!\w)|//NF(?!\w)|"
        r"(?<!\w)(?:TOP SECRET|SECRET)//",
        score=80,
        cased=True,
        words=("noforn", "//nf", "ts//sci", "rel to usa", "secret//"),
    ),
    PatternRule(
        id="confidential-marking",
        data_class="org.confidential",
        regex=r"(?<!\w)(?:(?:company|strictly|highly|commercial(?:ly)?|"
        r"business|internal)[ \-]confidential|"
        r"confidential (?:and|&) proprietary|proprietary (?:and|"
        r"&) confidential|internal use only|"
        r"do not (?:distribute|forward|disclose|share outside)|"
        r"trade secrets?|under nda|not for distribution|streng vertraulich|"
        r"strictement confidentiel|estrictamente confidencial|"
        r"riservato e confidenziale|"
        r"confidential:|\[confidential\])",
        score=70,
        words=(
            "confiden",
            "proprietary",
            "internal use only",
            "do not distribute",
            "do not forward",
            "do not disclose",
            "do not share",
            "trade secret",
            "under nda",
            "not for distribution",
            "vertraulich",
        ),
    ),
)
