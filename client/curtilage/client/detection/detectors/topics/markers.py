"""Decides whether a text is about a person: the speaker, a third party, or a case.

"What is HIV?" is about no person; "I was diagnosed with HIV", "bed 12 has a fever" and
"Miscarried on Sunday" are about an identifiable one. "A 55-year-old man" is a case: an
age and a sex identify no one, but a clinic may mean its patient. A polite phrase ("can
you tell me"), a number ("troponin I"), an organisation ("our clinic") and people in
general ("our users", "if the patient") are not persons. This module does not decide
what a text is about.

Every rule reads lower-case text and has bounded gaps.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

from curtilage.client.detection.detectors.loading import loading
from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.detectors.topics.lexicon import (
    LexiconDetector,
    class_of,
)
from curtilage.client.detection.detectors.topics.mixed import family_in
from curtilage.client.detection.packs import PACKS, Pack, one_of
from curtilage.client.detection.spans import Span
from curtilage.client.detection.wordlists import bag, lowered, words

SOMEBODY: Final = "marker.first_person"
ADDRESSEE: Final = "marker.addressee"
CASE: Final = "marker.case"
_SCORE = 70

# --- words --------------------------------------------------------------------------

_KIN = (
    "mother|father|mom|mum|mam|dad|mommy|mummy|daddy|parents?|son|daughter|child|"
    "children|kids?|baby|babies|toddler|newborn|twins|triplets|wife|husband|spouse|"
    "partner|fianc[eé]e?|boyfriend|girlfriend|bf|gf|ex|sister|brother|siblings?|aunt|"
    "auntie|uncle|niece|nephew|cousin|gran|granny|nan|nana|grandad|hubby|grand(?:ma|pa|dad|mother|"
    "father|son|daughter|parents?|child|children)|in-laws?|step(?:mother|father|mom|"
    "mum|"
    "dad|son|daughter)"
)
_NEAR = "friend|mate|roommate|flatmate|neighbou?r|colleague|co-?worker"
_ROLES = (
    "boss|manager|employee|client|patient|student|tenant|customer|supervisor|landlord|"
    "landlady|teacher|doctor|therapist|lawyer|solicitor|apprentice|intern|lodger|guest|"
    "resident|inmate|applicant|claimant|policyholder|worker|caller|pupil|nanny|carer"
)
_ANY_KIN = f"{_KIN}|{_NEAR}|{_ROLES}"
_DAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_FEW = (
    r"(?:\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|"
    r"fifteen|twenty|thirty|several|a few|a couple(?: of)?)"
)
_UNIT = r"(?:hours?|hrs?|days?|nights?|weeks?|wks?|months?|years?|yrs?)"
# Verbs of an event or a state, as opposed to general statements.
_DOES = (
    r"(?:'s|\u2019s|is|was|has|had|isn't|wasn't|hasn't|hadn't|keeps?|kept|won't|"
    r"wouldn't|can't|cannot|doesn't|didn't|got|gets|just|still|already|never|came|"
    r"comes|"
    r"went|goes|told|tells|says|said|asked|asks|wants|refuses|refused|needs|takes|took|"
    r"lost|stopped|started|died|fell|tested|denies|complains|presents|presented|"
    r"reports|reported|suffers|spiked|pulled|crashed|coded|deteriorated|who(?:'s|"
    r"\u2019s)|"
    r"who (?:is|was|has|had)|with)"
)
# Roles that a place has one of. No trades that exams and clauses mention in general,
# such as nurses, judges, officers.
_TRADES = (
    r"(?:goalkeeper|coach|porter|mayor|vicar|priest|pastor|imam|rabbi|organist|"
    r"choirboy|cook|chef|driver|pilot|cashier|receptionist|cleaner|caretaker|janitor|"
    r"principal|head ?teacher|deputy(?: head)?|secretary|butcher|baker|barber|"
    r"hairdresser|plumber|electrician|singer|drummer|guitarist|librarian|accountant|"
    r"treasurer|bride|groom|widow|widower|au pair|babysitter|dentist)"
)
# Not personal: an organisation, a product, people in general.
_HOUSE = (
    r"(?:hospitals?|clinics?|practice|wards?|unit|department|dept|surgery|pharmacy|lab|"
    r"laboratory|compan(?:y|ies)|firm|business|office|bank|school|university|college|"
    r"class|classroom|course|team|staff|organi[sz]ation|institution|agency|charity|"
    r"church|shop|store|restaurant|factory|city|town|village|country|region|state|"
    r"apps?|application|program|website|web ?page|site|web ?shop|portal|server|system|"
    r"software|service|platform|product|database|data|dataset|table|schema|api|code|"
    r"script|function|class(?:es)?|model|models|algorithm|pipeline|cluster|deployment|"
    r"repo|repository|branch|query|queries|test suite|tests|printer|scanner|monitor|"
    r"machine|mri|ct|x-ray|ultrasound|users|customers|clients|patients|students|pupils|"
    r"readers|players|visitors|members|employees|colleagues|nurses|doctors|physicians|"
    r"residents|guests|audience|followers|viewers|subscribers|listeners|"
    r"study|studies|trial|trials|cohort|sample|results|findings|analysis|analyses|"
    r"paper|"
    r"article|manuscript|abstract|thesis|dissertation|essay|assignment|homework|exam|"
    r"exams|quiz|lecture|lectures|lesson|presentation|talk|slides|poster|report|review|"
    r"blog|post|newsletter|book|novel|story|script|play|poem|podcast|channel|video|"
    r"game|"
    r"character|protagonist|hero|villain|campaign|project|research|hypothesis|model|"
    r"question|questions|request|message|text|sentence|draft|list|"
    r"understanding|opinion|guess|curiosity|garden|tomatoes|kitchen|bike|car|laptop|"
    r"computer|router|server|guidelines?|protocols?|leaflet|brochure|handbook|policy|"
    r"policies|training|world|society|species|ancestors|planet|climate|times|era|"
    r"century|oceans?|forests?|galaxy|universe)"
)

# --- what is about no person
# ------------------------------------------------------------

# About the speaker's wish, not their state: "I want to know", "tell me".
_POLITE = re.compile(
    r"(?<!\w)(?:can|could|would|will) you(?: please)? (?:\w+ )?(?:me|us)?|"
    # Actions on others, or questions; "can I get an abortion" is about the speaker.
    r"(?<!\w)(?:can|could|may) i (?:please )?(?:ask|see|give|prescribe|administer|"
    r"order|combine|crush|dilute|mix|convert|calculate|measure|distinguish|explain|"
    r"describe|treat|manage|monitor|teach|write|make|build|use|add|run|set|find)(?!\w)|"
    r"(?<!\w)(?:tell|give|help|show|teach|explain to|explain|remind|let|quiz|"
    r"write|find|send|get|list|make|draw|walk) (?:me|us)(?!\w)"
    # Requests that only an affected person makes.
    r"(?! (?:how (?:to|i can|we can) |to |with )?(?:cope|coping|live with|living with|"
    r"get (?:over|through|off|sober|clean|pregnant|custody)|come to terms|survive|quit|"
    r"recover|heal|conceive|accept (?:my|our|his|her|that)|deal with (?:my|our|being|"
    r"having|losing)|stop (?:drinking|smoking|using|cutting|eating|bleeding|binge\w*|"
    r"purging|gambling|hurting|thinking|crying)|lose weight|tell my)(?!\w))|"
    r"(?<!\w)(?:i|we)(?:'d| would|\u2019d)? (?:want|need|like|"
    r"would like|wish|have) (?:you )?to (?:know|learn|understand|ask|write|prepare|"
    r"compare|explain|find out|see|hear|get|be told|teach|present|read|summari[sz]e|"
    r"build|design|implement|create|give)(?!\w)|"
    r"(?<!\w)(?:i|we)(?:'m| am| are|\u2019m|'re|\u2019re) (?:writing|preparing|"
    r"researching|studying|learning|curious|wondering|interested|teaching|reading|"
    r"drafting|designing|building|developing|planning a (?:talk|lecture|lesson|study)|"
    r"hiring|recruiting|advertising for|"
    r"(?:looking for|seeking) (?:an?|two|three|new) (?:[\w-]+ ){0,4}?(?:nurses?|"
    r"receptionists?|managers?|assistants?|engineers?|developers?|secretar\w+|"
    r"coordinators?|technicians?|analysts?|administrators?|consultants?|trainees?)(?!\w)|"
    r"working on (?:an?|the|my)|giving an?|doing (?:research|a (?:paper|project))|"
    r"trying to (?:understand|learn|explain|build|implement|write|figure out))(?!\w)|"
    r"(?<!\w)(?:i|we) (?:need|want|would like|have)(?: to (?:give|hold|write|make))? "
    r"(?:an?|some|the|three|five|ten|\d+) (?:\w+ ){0,3}?(?:list|table|summary|outline|"
    r"overview|titles?|questions?|ideas?|examples?|talk|lecture|essay|presentation|"
    r"paper|exam|quiz|seminar|lesson|explanation|diagram|template)(?!\w)|"
    r"(?<!\w)(?:what|how|where|when|which|why)(?: \w+){0,3} (?:do|does|"
    r"should|can|could|would|will|did|must) (?:i|we|you)(?!\w)"
    r"(?! (?:still |ever |best )?(?:have|be|become|live|cope|hide|quit|die|survive|"
    r"walk|adopt|abort|terminate|breastfeed|feel|do (?:about|after|now)|"
    r"take (?:for|against)|get (?:an|off|over|out|rid|sober|pregnant|help))(?!\w))|"
    r"(?:^|[.?!:;\n] {0,2})(?:should|can|could|must|may|do) we(?!\w)|"
    r"(?<!\w)(?:i|we) (?:wonder|wondered|was wondering|am wondering|read(?= (?:that|in|"
    r"about|somewhere)\b))(?!\w)|"
    r"(?<!\w)(?:as|when|while|because|if|that|how|what|all|for) we (?:age|grow|sleep|"
    r"dream|breathe|eat|all|know|call|see|use|think|say|speak|read|learn)(?!\w)|"
    r"(?<!\w)we (?:all|know|can|define|assume|consider|obtain|conclude|hypothesi\w+|"
    r"aimed|sought|conducted|investigated|assessed|evaluated|examined|analy[sz]ed|"
    r"compared|enrolled|recruited|randomi[sz]ed|retrospectively|prospectively|"
    r"systematically|propose|demonstrated?|report (?:on|the|a|an|that|here)|reviewed|"
    r"studied|searched|measured|estimated|calculated|included|collected|performed|"
    r"present(?:ed)? (?:a|an|the|here|new))(?!\w)|"
    # The speaker's occupation alone; an illness would follow.
    r"(?<!\w)(?:i(?:'m| am|\u2019m)|we(?:'re| are|\u2019re)|as) an? (?:\w+ "
    r"){0,2}?(?:nurse|"
    r"doctor|physician|gp|surgeon|pharmacist|midwife|dentist|student|resident|"
    r"teacher|lecturer|professor|researcher|scientist|writer|author|journalist|lawyer|"
    r"attorney|solicitor|paralegal|accountant|developer|programmer|engineer|manager|"
    r"novelist|librarian|epidemiologist|psychologist|therapist|physiotherapist)"
    r"(?=[.,;:!]|$|,? (?:and )?(?:i |we )?(?:need|want|how|what|which|preparing|"
    r"writing|"
    r"studying|teaching|working|at|in) )"
)
_HOUSE_RE = re.compile(
    rf"(?<!\w)(?P<whose>my|our|us) "
    rf"(?P<between>(?:(?:[\w-]+|{_HOUSE}['\u2019]s) ){{0,2}}?)(?P<house>{_HOUSE})"
    r"(?![\w'\u2019])"
)
_RELATIVE = re.compile(_ANY_KIN)
# With "my", these mean an event in one's life ("my results: HIV", "my car was seized");
# with "our", they mean work.
_MINE = words(
    "results findings analysis report review exam exams class story script sample "
    "doctors physicians nurses car laptop computer kitchen bike"
)
# "type I", "factor V": a numeral, unless a verb follows "I".
_NUMERAL = re.compile(
    r"(?<!\w)(?:troponins?|types?|phases?|stages?|class(?:es)?|factors?|grades?|"
    r"levels?|"
    r"parts?|chapters?|title|schedule|angiotensin|complex|war|act|vol|volume|books?|"
    r"section|article|table|figure|fig|appendix|annex|bipolar|tier|category|zone|group|"
    r"collagen|interferon|topoisomerase|mhc|hla|neurofibromatosis|photosystem|"
    r"polymerase|caspase|hexokinase|apolipoprotein|apo|nerves?|lead|degree|band|league|"
    r"division|corps|calculus|physics|chemistry|biology|algebra|elizabeth|charles|"
    r"james|"
    r"henry|napoleon|francis|george|pope|paul|nicholas|wilhelm|mark|model|mobitz|"
    r"chiari|"
    r"salter-harris|figo|nyha|asa|bcs|biopharmaceutics|glycogen|mucopolysaccharidosis)"
    r"[ -]i(?!['\u2019\w])(?! (?:am|was|have|had|'?ve|will|would|can|could|should|do|"
    r"did|"
    r"feel|felt|need|want|think|take|took|got|get|live|lost|use|used|must|know|never|"
    r"just|still|also|wear|cut|drink|smoke|see|saw|hear|heard|left|went|"
    r"doubt|seem)"
    # "troponin I does", "phase I dose", "troponin I cut-off" begin like one of these.
    r"(?:n?['\u2019]?t|not|ta|e?d)?(?!\w|-\w))"
    r"|(?<!\w)i(?=(?: ?[/,-] ?| (?:and|or|to|vs|through) )i{1,3}v?(?!\w))"
    # A counter, an index, a list's first item.
    r"|(?<=[\[(=<>+*/^_])i(?=[\])=<>+*/^_;,])|(?<!\w)i(?= ?(?:[=<>+*^\])]| in range))"
    r"|(?<=for )i(?= in )|(?:^|\n) {0,4}i[.)](?= )"
)
_HE_OR_SHE = re.compile(
    r"(?<!\w)(?:(?:he|his|him|she|her|hers)(?: ?/ ?| or )(?:he|his|him|she|her|"
    r"hers))(?!\w)"
)
_IF = re.compile(
    r"(?<!\w)(?:if|whether|should|unless|whenever|must|does|do|may|can|each|every|any|"
    r"when|where|per|which|what|another|no|an?|average|typical)(?: [\w-]{1,12}){0,2} ?$"
)
_BEFORE = 34  # characters before a match that are searched for such a word

# --- what is about a person
# -------------------------------------------------------------

_PERSONAL = re.compile(
    r"(?<![\w'\u2019])(?:my|mine|myself|our|ours|we|we're|we've|us|i|i'm|im|ive|i've|"
    r"i\u2019m|i\u2019ve|i'd|i\u2019d|i'll|i\u2019ll|me)(?![\w])"
)
_SPEAKER_WORDS = words("my mine myself i im ive me we")
_PERSONAL_WORDS = words("my mine myself our ours we us i im ive me")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Marker:
    """One rule: the class of its match, and words of which every match contains one."""

    data_class: str
    pattern: re.Pattern[str]
    words: frozenset[str] = frozenset()
    # Excluded if a word before it makes the statement general: "if the patient has".
    particular: bool = False
    # It may refer to a case introduced before: "a man ... he", "the patient".
    back: bool = False


def _marker(
    data_class: str,
    of: str,
    *patterns: str,
    particular: bool = False,
    back: bool = False,
) -> _Marker:
    return _Marker(
        data_class=data_class,
        words=words(of),
        pattern=re.compile("|".join(patterns)),
        particular=particular,
        back=back,
    )


_RULES: Final = (
    _marker(
        SOMEBODY,
        "he she his her hers him their",
        r"(?<![\w'\u2019])(?:he|she|his|her|hers|him|he's|she's|he\u2019s|"
        r"she\u2019s)(?!\w)",
        rf"(?<!\w)(?:his|her|their) (?:[\w'\u2019-]{{2,14}} "
        rf"){{0,2}}?(?:{_ANY_KIN})(?!\w)",
        back=True,
    ),
    # The speaker's relatives, and people known by their relation to someone.
    _marker(
        SOMEBODY,
        "my our a an one",
        rf"(?<!\w)(?:my|our) (?:[\w'\u2019-]{{2,14}} ){{0,2}}?(?:{_ANY_KIN})"
        r"(?!\w)",
        rf"(?<!\w)(?:an?|one) (?:[\w-]{{2,14}} ){{0,2}}?(?:{_NEAR}|relative|cousin|"
        r"aunt|uncle|"
        rf"niece|nephew)(?: of (?:mine|ours)| {_DOES})(?!\w)",
        rf"(?<!\w)one of (?:my|our|the) (?:[\w-]{{2,14}} ){{0,2}}?(?:{_ROLES}|nurse|"
        r"resident|"
        r"report|pupil|guest|driver|player)s(?!\w)",
    ),
    _marker(
        SOMEBODY,
        "the that said",
        rf"(?<!\w)(?:the|that|said) (?:[\w-]{{2,14}} )?(?:{_KIN}|{_NEAR}|{_ROLES}|lady|"
        r"gentleman|man|woman|girl|boy|guy|kid|fellow|bloke|infant|neonate)(?: (?:in|"
        r"from|on|at|downstairs|upstairs|next door|opposite)(?: "
        rf"[\w-]{{1,12}}){{0,3}})? "
        rf"{_DOES}(?!\w)",
        particular=True,
        back=True,
    ),
    # People whom everyone there knows by that word.
    _marker(
        SOMEBODY,
        "the our somebody someone both",
        rf"(?<!\w)(?:the|our) (?:[\w-]{{2,14}} )?{_TRADES}(?: (?:in|from|on|at|of)(?: "
        rf"[\w-]{{1,12}}){{1,5}}?)? {_DOES}(?!\w)",
        r"(?<!\w)(?:somebody|someone) (?:else )?(?:here|(?:in|from|at|on)(?: "
        rf"[\w-]{{1,12}}){{1,3}}?) {_DOES}(?!\w)",
        r"(?<!\w)(?:both|our|the) (?:brothers|sisters|sons|daughters|twins|triplets)"
        rf"(?: (?:in|from|at)(?: [\w-]{{1,12}}){{1,3}}|,)? (?:have|had|are|were|"
        rf"{_DOES})(?!\w)",
        particular=True,
        back=True,
    ),
    # Names that only relatives use: "Grandad's had a turn".
    _marker(
        SOMEBODY,
        "mum mam mom dad mummy daddy grandad granddad gran granny nan nana grandma "
        "grandpa hubby auntie",
        r"(?:^|[\n.;!?] {0,2})(?:mum|mam|mom|dad|mummy|daddy|gran|grandad|granddad|"
        r"granny|nan|nana|grandma|grandpa|hubby|auntie)(?:['\u2019]s (?!day)| "
        rf"{_DOES}(?!\w))",
    ),
    # "They" without an antecedent; and patients without a verb.
    _marker(
        SOMEBODY,
        "they both",
        r"(?:^|\n)\W{0,3}they(?: (?:have|had|were|are|both|just|all)|['\u2019](?:ve|"
        r"d|re))+(?: (?:just|both|all|now|recently|been))* (?:diagnosed|tested|"
        r"admitted|discharged|arrested|charged|convicted|evicted|fired|sacked|sued|"
        r"divorc\w+|infected|expecting|pregnant|ill|sick|dying|bankrupt|positive)(?!\w)",
        r"(?<!\w)(?:both|all|neither|one|two|three) of them(?=[.,;!?]|$)",
    ),
    _marker(
        SOMEBODY,
        "twins triplets baby preemie boy girl man woman lady gentleman kid patient "
        "couple",
        r"(?<!\w)(?:the|both|that|our) (?:[\w-]{2,14} )?(?:twins|triplets|baby|"
        r"preemie|boy|girl|man|woman|lady|gentleman|kid|patient|couple) (?:in|on|from) "
        r"(?:the )?(?:nicu|picu|icu|itu|hdu|scbu|resus|ed|a&e|er|ward|side ?room|"
        r"cubicle|bay|bed|room|theatre|dialysis|isolation)(?!\w)",
        particular=True,
    ),
    _marker(
        SOMEBODY,
        "client employee worker claimant tenant resident inmate applicant policyholder "
        "patient pt lady gentleman guy kid twins preemie",
        r"(?<!\w)(?:this|said|above|same|new) (?:[\w-]{2,14} ){0,2}(?:client|employee|"
        r"worker|claimant|tenant|resident|inmate|applicant|policyholder|patient|pt|"
        r"lady|"
        r"gentleman|guy|kid)(?![\w-])",
        r"(?<!\w)(?:my|our) (?:[\w-]{2,14} ){0,2}(?:patient|pt|lady|gentleman|guy|kid|"
        r"twins|preemie)(?![\w-])",
    ),
    _marker(
        SOMEBODY,
        "patient client employee worker claimant tenant resident inmate applicant "
        "policyholder",
        r"(?<!\w)(?:the|that) (?:[\w-]{2,14} ){0,2}(?:patient|client|employee|worker|"
        r"claimant|tenant|resident|inmate|applicant|policyholder)(?![\w-])"
        r"(?! (?:should|must|may|can|could|to be|or|and (?:the|his) family)\b)",
        r"(?<!\w)(?:patient|pt|client|resident|employee)(?: (?:is|was|"
        r"has|had|presents?|presented|reports?|reported|denies|refuses|refused|wants|"
        r"denied|complain\w*|states?|stated|admitted|underwent|named|"
        r"called|id|takes|took|suffers?|will|who)\b|\s?[:#])",
        particular=True,
        back=True,
    ),
    _marker(
        SOMEBODY,
        "pt",
        r"(?<![\w'])pt(?= (?:is|was|has|had|with|refuses|denies|reports|states|c/o|s/p|"
        r"on))",
    ),
    _marker(
        SOMEBODY,
        "",
        r"(?<!\w)\d{1,3} ?y/?o(?!\w)|(?<![\w.])\d{2,3} ?[mf](?= (?:with|w/|c/o|s/p|p/w|"
        r"presents|admitted|on)\b)",
    ),
    # A bed, a room, a ward with an event; a course by days.
    _marker(
        SOMEBODY,
        "bed room bay cubicle rm ward unit icu nicu picu ed er resus theatre isolation "
        "itu hdu floor",
        r"(?<!\w)(?:bed|room|bay|cubicle|rm|bedspace)s? ?#?\d{1,3}[a-z]?(?!\w)"
        r"(?![.,]\d)",
        r"(?<!\w)(?:in|on|to|from) (?:the |our )?(?:\w+ )?(?:ward|unit|floor|icu|itu|"
        r"hdu|nicu|"
        r"picu|resus|isolation)(?: \d+[a-z]?)? (?:is|was|has|had|spiked|needs|keeps|"
        r"refuses|coded|died)(?!\w)",
        r"(?<!\w)(?:in|on) (?:the )?(?:nicu|picu|icu|itu|hdu|resus)[,.;]? (?:one|both|"
        r"who|with|"
        r"on|now|since|after)(?!\w)",
    ),
    _marker(
        SOMEBODY,
        "in at resident lady gentleman man woman",
        r"(?<!\w)(?:resident|lady|gentleman|man|woman|patient|guy|boy|girl|kid|baby) "
        r"in (?:"
        r"number |no\.? ?)?\d{1,3}[a-z]?(?![\w.])",
    ),
    _marker(
        SOMEBODY,
        "consult consultation referral refer handover handoff signout sign admission "
        "admit transfer transferred admitted",
        r"(?:^|[.;:!?\n] {0,2}|(?<=need )|(?<=a )|(?<=new ))(?:urgent |new |phone "
        r")?(?:consult"
        r"(?:ation)?|referral|handover|hand-?off|sign-?out|admission|transfer)(?: ?:| "
        r"(?:for|"
        r"of|from|on|about|re) (?:the|an?|this|our|my|bed|room|\d))",
        r"(?<!\w)new admission(?:s)?(?= (?:from|with|in|on|tonight|today)|[,:])",
        r"(?<!\w)(?:one|both|neither|the other|the older|the younger|the first|the "
        r"second) "
        r"(?:of them )?(?:has|have|is|had|was) (?!of\b)",
    ),
    _marker(
        SOMEBODY,
        "pod day hospital op",
        r"(?<!\w)pod ?#?\d{1,2}(?!\w)|(?<!\w)(?:post-?op(?:erative)?|hospital|icu) day "
        r"?#?\d",
    ),
    _marker(
        SOMEBODY,
        "bp hr rr spo2 sats t temp gcs lactate wbc crp map",
        r"(?<!\w)(?:bp|hr|rr|spo2|sats?|t|temp|gcs|lactate|wbc|crp|"
        r"map)\W{0,2}\d[\d./%]*"
        r"(?:[ ,;]{1,3}(?:and )?(?:bp|hr|rr|spo2|sats?|t|temp|gcs|lactate|wbc|crp|map)"
        r"\W{0,2}\d)",
    ),
    _marker(
        SOMEBODY,
        "hpi pmh hx dx cc s o a p meds allergies assessment plan impression vitals "
        "exam "
        "diagnosis history",
        r"(?:^|[\n.;] {0,2})(?:hpi|pmh|pmhx|cc|s|o/e|sh|fh|ros) ?: "
        r"?\w[^\n]{0,600}?(?:[\n.;] {0,2})"
        r"(?:o|a|p|a/p|meds|medications|plan|assessment|impression|allergies|vitals|"
        r"exam|pe|"
        r"pmh) ?:",
        r"(?<!\w)(?:diagnosis|diagnoses|conditions?|history|allergies|convictions?) on "
        r"(?:file|record)(?!\w)",
        r"(?:^|[\n.;] {0,2})(?:diagnosis|dx|allergies|problem list) ?: ?(?!what|how|"
        r"name|list)\w",
    ),
    # Without a subject: the writer means themselves, or their patient.
    _marker(
        SOMEBODY,
        "",
        r"(?:^|[\n.;:!?\u2022*>\u2013\u2014\"-] {0,3})(?:(?:just|recently|newly|still|"
        r"already|"
        r"currently|now|then|only|finally|also|ok|okay|hi|hello|hey|so|and|but|well|"
        r"sorry|"
        r"help|please|got|getting|been|being|was|were|had|have|having|about to be|"
        r"officially|wrongly|never|twice|once)[ ,]{1,2}){0,4}(?:(?:mis)?diagnosed|"
        r"miscarried|"
        r"convicted|arrested|charged|sentenced|imprisoned|jailed|indicted|evicted|"
        r"fired|"
        r"sacked|dismissed|demoted|suspended|terminated|furloughed|laid off|let go|"
        r"made "
        r"redundant|divorced|separated|widowed|hospitali[sz]ed|admitted|discharged|"
        r"readmitted|intubated|extubated|sectioned|operated|prescribed|relapsed|"
        r"overdosed|"
        r"deported|detained|raped|assaulted|molested|harassed|bullied|beaten|turned "
        r"down|"
        r"denied|refused|rejected|outed|baptis\w+|baptiz\w+|converted|tested "
        r"(?:positive|"
        r"negative)|lost (?:the|my|our|another) \w+|(?:put|started|stopped|switched|"
        r"taken) "
        r"(?:on|off|taking|the|my|to|with)|served|sued|caught|busted|told|cheated|"
        r"pregnant|"
        r"bleeding|vomiting|miscarrying|seen in clinic|transferred|overdrawn|owe|"
        r"diagnosis came)"
        r"(?=[.,;:!?\n]|$| (?:with|of|for|from|on|at|in|as|by|to|off|out|last|"
        r"yesterday|"
        r"today|tonight|this|again|twice|once|since|after|because|because|when|while|"
        r"and|"
        r"but|positive|negative|at|home|over|under|without|during|before|until|that|"
        r"\d))"
        r"(?! (?:of|for|from) (?:the )?(?:following|above))",
        # "Living with lupus, which cream?", "T1 diabetic here", "Got a zero".
        r"(?:^|[\n.;!?] {0,2})(?:still |again |been )?(?:living|struggling|coping|"
        r"dealing|suffering|battling|trying|stuck|diagnosed|born) (?:with|to|from|at) "
        r"[^.?!\n]{2,60}?(?:,? (?:again|lately|since|today|these days|right now)(?!\w)|"
        r"[,.:;\u2013-] ?(?:any|what|which|how|can|is|should|help|please|need|am|do|"
        r"will)"
        r"(?!\w))",
        # Self-introductions; "put here" and the like are not about a person.
        r"(?:^|[\n.;!?] {0,2})(?:(?!(?:click|over|right|from|what|welcome|come|start|"
        r"look|"
        r"stop|nothing|something|anything|everything|nobody|see|put|paste|insert|enter|"
        r"write|add|type|place|is|are|was|were|the|this|that|it|your|our|not|be|live|"
        r"leave|"
        r"drop|sign|text|code|name|new|no|to|go|get|up|out|in|down)\b)[\w'+-]+ ){1,4}"
        r"here(?=[.,:;!]|$| and (?!there))",
        r"(?:^|[\n.;!?] {0,2})(?:just |finally |also )?(?:got|failed|lost|missed|"
        r"caught|"
        r"broke|signed|had) (?:an?|my|the|another|two|three) (?!question|idea|quick|"
        r"problem|look|minute|sec|few|chance|test suite|build)\w",
        r"(?<!\w)overdrawn (?:again|already|till|until|since|by|every)(?!\w)",
        r"(?<!\w)(?:scheduled|booked|due|appointment|appt|surgery|op|scan|biopsy|"
        r"results?|"
        r"hearing|trial|court(?: date)?|interview|abortion|termination|procedure|"
        r"chemo|dialysis|induction|section|transplant)(?: (?:is|are|was|were|set|"
        r"scheduled|"
        r"booked|due|planned|back))?(?: (?:for|on|this|next|at|by|come|in))? "
        rf"(?:{_DAY}|"
        r"tomorrow|tonight|today|next week|this week|next month|the \d{1,2}(?:st|nd|rd|"
        r"th)|"
        rf"{_FEW} {_UNIT})(?!\w)",
        rf"(?<!\w)(?:since|until|till) (?:yesterday|last (?:night|week|month|{_DAY})|"
        rf"(?:this|that) (?:morning|afternoon|evening|week)|{_DAY}|christmas|easter|"
        r"lunch|breakfast|noon|midnight|the (?:op|operation|surgery|birth|accident|"
        r"crash|"
        r"divorce|funeral|fall|move|festival|transplant|diagnosis|redundancy|"
        r"layoff))(?!\w)",
        rf"(?:^|[\n.;!?] {{0,2}}){_FEW} (?:more )?(?:{_UNIT}|rounds?|cycles?|"
        r"payments?) (?:"
        r"pregnant|sober|clean|along|behind|late|in|into|post-?op|post-?partum|overdue|"
        r"done|left|to go|without|off|on)(?!\w)",
        rf"(?<!\w)(?:for|these|the (?:last|past)) {_FEW} {_UNIT}(?: now| straight| in "
        r"a row|"
        r" already| running)(?!\w)",
        rf"(?<!\w)(?:day|week|month|round|cycle) {_FEW} (?:of|on|off|without|clean|"
        r"sober)(?!\w)",
        r"(?:^|[\n.;!?] {0,2})(?:still |just |really )?(?:can't|can\u2019t|cannot|"
        r"couldn't|"
        r"couldn\u2019t|haven't|haven\u2019t|won't|don't want to|don\u2019t want to|"
        r"keep|"
        r"feeling|feel|hurts|hearing|seeing|having|woke up|waking up|throwing up|threw "
        r"up|"
        r"passed out|hungover|ashamed|scared|suicidal|on (?:parole|probation|bail|"
        r"remand|"
        r"benefits|disability|sick leave|methadone|insulin|dialysis|chemo))"
        r"(?! (?:the|an?) (?:function|code|app|page|server|file|loop|list)\b)(?!\w)",
    ),
    _marker(
        SOMEBODY,
        "yesterday overnight night morning weekend week ago monday tuesday wednesday "
        "thursday friday saturday sunday weeks days months hours tonight tomorrow",
        r"(?<!\w)(?:yesterday|overnight|last (?:night|week(?:end)?)|this morning|"
        rf"(?:on|last|this|every) {_DAY}|{_FEW} (?:{_UNIT}) ago|\d{{1,3}} ?(?:h|hrs?|"
        r"hours?|d|"
        r"days?) ago|x ?\d{1,2} ?(?:h|d|days|hours|wks?|weeks))(?!\w)",
    ),
    # The person that an application listens to.
    _marker(
        SOMEBODY,
        "user caller customer member visitor subscriber",
        r"(?<!\w)(?:(?:the|this|our) )?(?:user|caller|customer|subscriber)(?:'s|"
        r"\u2019s)? "
        r"(?:also |still |already |recently |just |now )?(?:(?:is|was) (?!(?:logged|"
        r"authenticated|prompted|redirected|asked|allowed|able|not|asking|looking|"
        r"expected|shown|using|typing|always|right|king|unable|angry|new|happy|"
        r"satisfied|unhappy|sent|notified|required|given|trying|signed|a bot|an admin|"
        r"charged|billed|confused|in control|idle|active|online|offline)\b)|(?:has|"
        r"had) "
        r"(?!(?:permission|access|asked|a question|questions|clicked|entered|selected|"
        r"logged|no|not|to|been (?:asked|logged|redirected)|an account|the (?:option|"
        r"right|role))\b)|lives|takes|took|suffers|identifies|filed|owes|owed|lost|"
        r"works|mentioned|told|disclosed|believes|prays|voted|attends|drinks|smokes|"
        r"self-harms|recovers|(?:diagnosis|illness|condition|health|medications?|"
        r"debts?|"
        r"income|salary|religion|sexuality|orientation|conviction)\b)",
        r"(?<!\w)(?:about|memory of|notes on|facts about|profile of) the (?:user|"
        r"caller|"
        r"customer)(?! (?:interface|experience|journey))",
        particular=True,
    ),
    _marker(
        ADDRESSEE,
        "you your yours youre",
        r"(?<!\w)you(?:'re|\u2019re|'ve|\u2019ve|'d|\u2019d| are| were| have| had| "
        r"took| take| "
        r"mentioned| said| told| described| wrote| lost| owe| earn| filed| tested| "
        r"asked "
        r"about your| may prefer| feel| felt| suffer| live)(?! (?:to|any|a question|"
        r"questions|welcome|right|looking|asking|trying|using|interested|free|done|"
        r"ready|"
        r"not|the option|two options|several options|options)\b)(?!\w)",
        r"(?<!\w)your(?! (?:\w+ )?(?:body|doctor|doctors|gp|physician|pharmacist|"
        r"health(?:care)?|provider|immune|brain|heart|lungs|liver|kidneys|muscles|"
        r"bones|"
        r"cells|skin|eyes|stomach|question|request|code|text|draft|file|files|app|site|"
        r"query|server|router|cables|device|browser|risk|diet|computer|function|"
        r"function's|"
        r"team|needs|situation|local|own|list|data|table|essay|story|email|message|"
        r"document|project|oven|dough|plants?|garden|local)\b) [\w'-]",
        r"(?<!\w)(?:as|being) an? (?:[\w-]+ ){1,4}you(?!\w)",
        r"(?<!\w)(?:since|because|given(?: that)?|now that) you(?!\w)",
        particular=True,
    ),
    # A case that cannot be identified: ages below 90, sexes, "a patient".
    _marker(
        CASE,
        "old aged",
        r"(?<!\w)\d{1,3}[ -](?:year|yr|month|week|day)s?[ -]olds?(?!\w)",
        r"(?<!\w)(?:man|woman|male|female|patient|boy|girl|person),? aged? (?:of "
        r")?\d{1,3}",
    ),
    _marker(
        CASE,
        "a an another",
        rf"(?<!\w)(?:an?|another) (?:[\w-]{{2,14}} ){{0,3}}?(?:{_ROLES}|man|woman|boy|"
        r"girl|person|"
        r"male|female|infant|neonate|child|baby|kid|mother|father)(?! (?:of|in) "
        r"(?:general|"
        r"need))(?: in (?:\w+ )?twenties| in (?:\w+ )?(?:thir|for|fif|six|seven|"
        r"eigh)ties)? "
        rf"{_DOES}(?!\w)",
        particular=True,
    ),
)
# If a case was introduced as any man, statements on "him" and "the patient" are about
# the case, unless a day or the speaker makes him identifiable.
_ANY_MAN = re.compile(
    r"(?:^|[\n.:;!?)\]] {0,2}|(?:of|in|for|with|about|case|question)[: "
    r"]{1,2})(?:an? )?"
    r"(?:previously |otherwise |healthy |obese |pregnant |young |elderly |[a-z-]+ "
    r"){0,3}?"
    r"(?:\d{1,2}[ -](?:year|yr|month|week|day)s?[ -]old|(?:man|woman|boy|girl) aged \d)"
)


# --- the other languages: their packs
# --------------------------------------------------


class _PackRules:
    """The compiled markers of one pack."""

    def __init__(self, pack: Pack) -> None:
        said = {name: one_of(each) for name, each in pack.markers.items()}
        self._rules = (
            (SOMEBODY, said["somebody"]),
            (ADDRESSEE, said["addressee"]),
            (CASE, said["case"]),
        )
        self._nonpersonal = said["nobody"]
        self._everyday = said.get("everyday", one_of(()))
        self._asks = re.compile(
            rf"\W*(?:{'|'.join(pack.markers['asks']) or '(?!)'})(?!\w)"
        )

    def markers(
        self, text: str, unlisted: Callable[[], bool]
    ) -> Iterator[tuple[str, int, int]]:
        """Yield the class and position of each marker in a lower-case text.

        Args:
            text: the text.
            unlisted: whether it has no word of a sensitive class.
        """
        found = [
            (data_class, *match.span())
            for data_class, pattern in self._rules
            for match in pattern.finditer(text)
        ]
        frames = (
            [match.span() for match in self._nonpersonal.finditer(text)]
            if found
            else []
        )
        if found and unlisted():
            frames += [match.span() for match in self._everyday.finditer(text)]
        for data_class, begin, end in found:
            if not any(start <= begin < stop for start, stop in frames):
                yield data_class, begin, end

    def asks(self, text: str, unlisted: Callable[[], bool]) -> bool:
        """Return whether each sentence of a lower-case text asks or is impersonal."""
        return _every_sentence(
            text,
            lambda each: (
                self._asks.match(each)
                or self._nonpersonal.search(each)
                or (self._everyday.search(each) and unlisted())
            ),
        )


@cache
def _rules_of(code: str) -> _PackRules:
    with loading():
        return _PackRules(PACKS[code])


class PersonMarkerDetector:
    """Finds words that make a text about a person: speaker, third party or case."""

    id = "person-marker"

    def find(self, reading: Reading) -> Iterable[Span]:
        """Return each marker outside of passages that are about no person."""
        return reading.once(_markers)


def _names_nothing(reading: Reading) -> bool:
    # A model takes hunger or a lost key for an illness. If a listed word agrees with
    # the model, everyday matters are not considered.
    return not any(True for _ in LexiconDetector().find(reading))


def _markers(reading: Reading) -> tuple[Span, ...]:
    text = lowered(reading.text)
    unlisted = partial(reading.once, _names_nothing)
    packed = [
        Span(
            data_class=data_class,
            detector=PersonMarkerDetector.id,
            start=start,
            end=end,
            score=_SCORE,
        )
        for code in reading.packs
        for data_class, start, end in _rules_of(code).markers(text, unlisted)
    ]
    mixed = [
        Span(
            data_class=SOMEBODY,
            detector=PersonMarkerDetector.id,
            start=start,
            end=end,
            score=_SCORE,
        )
        for start, end in family_in(text)
    ]
    english = _english_markers(reading, text) if reading.english else ()
    return (*packed, *mixed, *english)


def _english_markers(reading: Reading, text: str) -> tuple[Span, ...]:
    here = bag(text)
    found = [
        each
        for each in (*_speakers(reading.text, text, here), *_rules(text, here))
        if reading.in_english(each.start, each.end)
    ]
    if not found:
        return ()
    frames = _impersonal(text)
    kept = [
        each
        for each in found
        if not any(start <= each.start < end for start, end in frames)
    ]
    # "A 55-year-old man ... he": not identifiable, as long as only words that refer
    # back to him indicate a person.
    any_man = all(each.back for each in kept) and _introduces_any_man(text)
    return tuple(
        Span(
            data_class=CASE if any_man else each.data_class,
            detector=PersonMarkerDetector.id,
            start=each.start,
            end=each.end,
            score=_SCORE,
        )
        for each in kept
    )


def tells_of_any_man(reading: Reading) -> bool:
    """Return whether a text is about a case ("a man of 55") and no other person."""
    kinds = _kinds(reading)
    if SOMEBODY in kinds:
        return False
    if not reading.english:
        return CASE in kinds and "?" in reading.text
    return _introduces_any_man(lowered(reading.text))


def _introduces_any_man(plain: str) -> bool:
    # A case comes with a question. A text without one may be from a patient's chart.
    return "?" in plain and _ANY_MAN.search(plain) is not None


def _kinds(reading: Reading) -> frozenset[str]:
    found = reading.once(_markers)
    return frozenset(span.data_class for span in found) - {ADDRESSEE}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    data_class: str
    start: int
    end: int
    back: bool = False


def _speakers(raw: str, text: str, here: frozenset[str]) -> Iterator[_Found]:
    if _PERSONAL_WORDS.isdisjoint(here):
        return
    shouted = raw.isupper()
    for match in _PERSONAL.finditer(text):
        # A country, an injection route, a disease; unless all is in capitals.
        if raw[match.start() : match.end()] in {"US", "IM", "ME"} and not shouted:
            continue
        yield _Found(data_class=SOMEBODY, start=match.start(), end=match.end())


def _rules(text: str, here: frozenset[str]) -> Iterator[_Found]:
    for rule in _RULES:
        if rule.words and rule.words.isdisjoint(here):
            continue
        for match in rule.pattern.finditer(text):
            before = text[max(match.start() - _BEFORE, 0) : match.start()]
            if not (rule.particular and _IF.search(before)):
                yield _Found(
                    data_class=rule.data_class,
                    start=match.start(),
                    end=match.end(),
                    back=rule.back or rule.data_class != SOMEBODY,
                )


def _impersonal(text: str) -> list[tuple[int, int]]:
    """Return the positions where words for a person refer to no person."""
    found = [
        match.span()
        for pattern in (_POLITE, _HE_OR_SHE)
        for match in pattern.finditer(text)
    ]
    found.extend(_organisations(text))
    # For a numeral, only the letter.
    found.extend((match.end() - 1, match.end()) for match in _NUMERAL.finditer(text))
    return found


def _organisations(text: str) -> Iterator[tuple[int, int]]:
    """Yield the positions of organisations or things that identify no person.

    "My father's office" identifies my father, "my HIV clinic" discloses that I have
    HIV; "our diabetes clinic" is a place of work.
    """
    for match in _HOUSE_RE.finditer(text):
        between = match["between"].split()
        mine = match["whose"] == "my" and (
            match["house"] in _MINE or any(map(class_of, between))
        )
        if not mine and not any(map(_RELATIVE.fullmatch, between)):
            yield match.span()


# --- whether a text asks or reports
# -------------------------------------------------------

_SENTENCE = re.compile(r"[^.?!\n]{1,400}[.?!]*")
_ASKS = re.compile(
    r"\W*(?:(?:and|but|so|or|then|now|also|please|pls|hi|hello|hey|ok|thanks|"
    r"thank you|quick "
    r"question|question|in (?:the )?[\w ,'-]{2,60}|among [\w ,'-]{2,60}|for [\w "
    r",'-]{2,60}|"
    r"given [\w ,'-]{2,60}|as an? (?:[\w-]+ ){0,4}(?:assistant|model|bot|agent|ai))"
    r"[,:]? (?:you |please )?)?(?:what|which|who|whom|whose|why|how|when|where|is|"
    r"are|"
    r"was|were|does|do|did|has|have|had|can|could|should|would|will|may|might|must|"
    r"explain|describe|define|list|name|compare|contrast|summari[sz]e|outline|discuss|"
    r"give|write|draft|create|make|generate|suggest|recommend|tell|show|provide|"
    r"translate|design|plot|draw|find|identify|interpret|calculate|compute|convert|"
    r"rewrite|paraphrase|prepare|propose|develop|state|mention|classify|evaluate|you "
    r"are|"
    r"you're|we(?:['\u2019]re| are) (?:now )?(?:hiring|recruiting)|(?:you )?(?:should|"
    r"must|shall) (?:always|never|only|not|answer|respond|"
    r"reply|be|use|write)|answer|respond|reply|always|never|do not|don't|do (?:the|it|"
    r"this|that)|be|keep|use|help|avoid|try|take (?:a|an|the)|imagine|picture|pretend|"
    r"assume|brainstorm|fix|refactor|implement|merge|deploy|install|configure|debug|"
    r"optimi[sz]e|sort|rename|bump|upgrade|rank|choose|pick|(?:open|close) (?:(?:a|an|"
    r"the|"
    r"this) )?(?:ticket|issue|pull request|file)|solve|extract|proofread|correct|"
    r"improve|shorten|rephrase|"
    r"your (?:explanation|answer|response|reply|output|reasoning|solution|tone)|"
    r"focus|"
    r"stay|act as|your (?:task|job|role|answers?)|assistant for|a helpful|the "
    r"assistant|"
    r"analy[sz]e|review|difference between|role of|mechanism of|prevalence of|"
    r"incidence "
    r"of|definition of|symptoms of|causes of|treatment of|epidemiology of)(?!\w)"
)


# An assistant's instructions address no person; "how do you cope" addresses one.
_ANYBODY = re.compile(
    r"(?<!can )(?<!could )(?<!would )(?<!will )(?<!\w)you(?! (?:are|have|know|"
    r"(?:should|must|shall) (?:always|never|only|not|answer|respond|reply|be|use|"
    r"write))(?!\w))(?!\w)|"
    r"(?<!\w)your(?! (?:own )?(?:explanation|answers?|response|reply|reasoning|output|"
    r"solution|tone|task|job is|role is|instructions|system prompt)(?!\w))(?!\w)"
)
_JOINT = "\x1e"  # between turns that are read as one (``turns.JOINT``)


# A job whose holder is not known yet.
_ADVERT = re.compile(
    r"(?<!\w)we(?:['\u2019]re| are) (?:now )?(?:hiring|recruiting)(?!\w)"
)


def tells_of_nobody(reading: Reading) -> bool:
    """Return whether a text asks, instructs or describes an organisation.

    If so, it discloses nothing about a person, and no topic in it is personal, however
    certain.
    """
    plain = lowered(reading.text)
    turns = plain.split(_JOINT)
    if reading.packs:
        unlisted = partial(reading.once, _names_nothing)
        return not _kinds(reading) and all(
            any(_rules_of(code).asks(each, unlisted) for code in reading.packs)
            or (reading.english and _asks(each))
            for each in turns
        )
    if len(turns) > 1:
        # Each turn was judged alone as well; together they need not be stricter.
        return not _kinds(reading) and all(map(_asks, turns))
    if any(_organisations(plain)) and not _kinds(reading):
        return True
    here = bag(_ADVERT.sub(" ", _NUMERAL.sub(" ", plain)))
    # "How do you deal with it?" is more often about the speaker than about anyone else.
    if not _SPEAKER_WORDS.isdisjoint(here) or _ANYBODY.search(plain):
        return False
    return _asks(plain)


def _asks(plain: str) -> bool:
    return _every_sentence(plain, _ASKS.match)


def _every_sentence(plain: str, asks: Callable[[str], object]) -> bool:
    pieces = [each[0].strip() for each in _SENTENCE.finditer(plain)]
    sentences = [each for each in pieces if any(map(str.isalnum, each))]
    return bool(sentences) and all(
        each.endswith("?") or asks(each) is not None for each in sentences
    )
