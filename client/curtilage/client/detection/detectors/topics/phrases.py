"""Phrases by which people disclose something without the word that names it.

"I hear voices", "we keep kosher", "I did three years": no word in these is about
health, belief or crime. Each rule runs only if one of its words occurs, reads
lower-case text, and has bounded gaps. The lists are this project's own.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from curtilage.client.detection.wordlists import words

_SELF = "(?:myself|himself|herself|themselves|ourselves)"
_IS = "(?:i['\u2019]?m|i am|he['\u2019]?s|she['\u2019]?s|is|we['\u2019]?re|we are)"
_HIS = "(?:my|our|his|her|their)"
_NOT = "(?:can['\u2019]?t|cannot|can not|doesn['\u2019]?t|does not|no longer|never)"
_COUNSEL = "(?:attorneys?|counsel|lawyers?|solicitors?|barristers?)"
_FEW = (
    "(?:\\d{1,2}|an?|one|two|three|four|five|six|seven|eight|nine|ten|twelve|"
    "fifteen|twenty|some|several|a few)"
)
_MONEY = "[$\u00a3\u20ac]? ?\\d[\\d,.]*k?"
# The same, if it is certainly money: with a sign or a word for it, or as spoken.
_SUM = (
    "(?:[$\u00a3\u20ac] ?\\d[\\d,.]*(?:k|m| ?(?:grand|thousand|million))?|\\d[\\d,.]* "
    "?(?:k|"
    "grand|thousand|million|euros?|dollars?|pounds?|quid|bucks|francs|rupees)|(?:an?|"
    "one|"
    "two|three|four|five|six|seven|eight|nine|ten|twelve|fifteen|twenty|thirty|forty|"
    "fifty|sixty|eighty|a few|several) (?:grand|thousand|hundred|million|k))"
)
_BODY = (
    "(?:arms?|legs?|foot|feet|toes?|hands?|fingers?|wrists?|chest|breasts?|nipples?|"
    "belly|"
    "stomach|tummy|back|neck|head|scalp|face|jaw|eyes?|ears?|nose|mouth|lips?|tongue|"
    "gums?|"
    "tooth|teeth|throat|skin|knees?|hips?|shoulders?|thighs?|groin|bum|bottom|penis|"
    "vagina|"
    "testicles?|balls?|womb|bladder|bowels?|spine|ribs?|heart|hair|nails?|armpits?)"
)
_KIN = (
    "(?:mother|father|mom|mum|dad|parents?|son|daughter|child|kids?|baby|wife|husband|"
    "partner|girlfriend|boyfriend|sister|brother|aunt|uncle|cousin|grandma|grandpa|ex|"
    "stepdad|stepmum|stepmom|nephew|niece|friend|boss)"
)
_DAY = "(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_SOON = (
    f"(?:on |by |this |next |until |till )?(?:{_DAY}|tomorrow|tonight|today|next "
    f"(?:week|"
    "month|quarter)|this week|the \\d{1,2}(?:st|nd|rd|th)|(?:january|february|march|"
    "april|"
    "may|june|july|august|september|october|november|december)(?: \\d{1,2})?)"
)
_MANY = "(?:\\d{1,3}|one|two|three|four|five|six|seven|eight|nine|ten|a few|several)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrase:
    """One rule.

    Attributes:
        data_class: the class of a match.
        words: every text that the rule matches contains one of them.
        pattern: for lower-case text.
    """

    data_class: str
    words: frozenset[str]
    pattern: re.Pattern[str]


def phrases_in(text: str, here: frozenset[str]) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield the matches of each rule in a lower-case text with these words."""
    for phrase in PHRASES:
        if not phrase.words.isdisjoint(here):
            for match in phrase.pattern.finditer(text):
                yield phrase.data_class, match


def _phrase(data_class: str, of: str, *patterns: str) -> Phrase:
    return Phrase(
        data_class=data_class,
        words=words(of),
        pattern=re.compile(rf"(?<!\w)(?:{'|'.join(patterns)})(?!\w)"),
    )


PHRASES: Final = (
    # --- health: mind, dependence, eating, age, body
    _phrase(
        "health.condition",
        "voices end kill killing hurt hurting harm harming life die dead live",
        r"hear(?:s|ing|d)? voices",
        r"end(?:ing)? it all|end(?:ing)? (?:my|his|her) (?:own )?life",
        rf"(?:kill|hurt|harm)(?:s|ed|ing)? {_SELF}",
        r"(?:take|taking|took) (?:my|his|her) (?:own )?life",
        r"(?:i|he|she) (?:just )?wants? to die|wish(?:es)? (?:i|he|she) (?:was|were) "
        r"dead|better off dead|(?:no reason|not want|don['\u2019]?t want) to live",
    ),
    _phrase(
        "health.condition",
        "clean using used dealer bottle withdrawal",
        rf"clean for {_FEW} (?:days?|weeks?|months?|years?)|(?:get|got|getting|stay|"
        r"stayed|staying) clean(?= (?:from|for|off|since))|been clean since",
        r"(?:started|i|he|she) (?:using|used) again|going through withdrawal",
    ),
    _phrase(
        "health.condition",
        "throw throws throwing threw thrown purge purges purged purging puke pukes "
        "puked puking vomit sick eat eating binge",
        r"(?:thr(?:ow|ew|own|owing|ows) up|puk(?:e|es|ed|ing)|purg(?:e|es|ed|ing)) "
        r"(?:after|blood|on purpose|every (?:day|time|meal|morning|night)|my|again)",
        rf"mak(?:e|es|ing) {_SELF} (?:sick|throw up|vomit|puke)",
        r"(?:stopped|stops|refuses|refusing) (?:to eat|eating)|binge[- ]eat\w*",
    ),
    _phrase(
        "health.condition",
        "remember remembers recognise recognize recognises recognizes memory wanders",
        rf"{_NOT} (?:remember|recogni[sz]e|remembers|recogni[sz]es) (?:me|us|"
        r"who (?:i am|we are|he is|she is)|my name|our names?|where (?:he|she) (?:is|"
        r"lives))",
        rf"(?:losing|lost|loses) {_HIS} memory|memory loss|wanders (?:off )?at night",
    ),
    _phrase(
        "health.condition",
        "clap crabs warts bed bedwetting",
        r"(?:got|have|has|had|caught|gave (?:me|him|her)) (?:the clap|crabs|genital "
        r"warts)|wet(?:s|ting)? (?:the|my|his|her) bed|bed[- ]?wetting",
    ),
    _phrase(
        "health.lab",
        "cell cells cd4 viral",
        r"t[- ]?cells? counts?|cd4(?:\+)?(?: counts?)?|viral load",
    ),
    _phrase(
        "health.procedure",
        "stent stents op operated hormones",
        r"stents? in|(?:after|since|before) (?:the|my|his|her) op|operated on (?:me|"
        r"him|her|us|my)|(?:on|taking|started) hormones",
    ),
    _phrase(
        "health.procedure",
        "bypass",
        r"(?:gastric|heart|coronary|cardiac|triple|double|quadruple) bypass|"
        r"bypass (?:surgery|operation|op|graft\w*|patients?)|"
        r"(?:my|his|her) bypass(?! (?:filter|switch|valve|road|rule|proxy|the)(?!\w))",
    ),
    # A period of time is a "period" as well ("the contract's period").
    _phrase(
        "health.condition",
        "period periods",
        r"(?:my|her|your|between|heavy|heavier|painful|irregular|late|missed|first|last|skipped|"
        r"light|regular|no|menstrual) periods?(?! (?:of|in which|to|from)(?!\w))"
        r"(?! (?:between|during|until|when))",
        r"periods? (?:pains?|cramps?|late|bleeding|blood|products?|stopped|came|hasn't|"
        r"hasn\u2019t|haven't|haven\u2019t|is late|are late|won't stop|returned|"
        r"started)|on (?:my|her) period",
    ),
    # Idioms for an illness.
    _phrase(
        "health.condition",
        "dog legs marbles nerves rails turn turns words slurring slurred",
        r"funny turns?|can['\u2019]?t find (?:his|her|my) words|slurr(?:ed|ing) (?:his|"
        r"her|my) (?:words|speech)",
        r"(?:struggl\w+|fight\w*|battl\w+|liv\w+) (?:with )?(?:the |my )?black dog|"
        r"black "
        r"dog (?:is )?(?:back|again)|off (?:her|his|their) legs|los(?:t|ing) (?:her|"
        r"his|"
        r"my) marbles|(?:my|his|her) nerves are (?:shot|gone)|gone off the rails",
    ),
    # 45 CFR 164.514(b)(2)(i)(C) names the dates of admission and discharge.
    _phrase(
        "health.procedure",
        "admitted readmitted discharged",
        r"(?:was|were|been|got|gets?|is|are|being) (?:re)?(?:admitted|discharged) "
        r"(?:on (?:the )?(?=\d|mon|tue|wed|thu|fri|sat|sun|jan|feb|mar|apr|may|jun|"
        r"jul|aug|sep|oct|nov|dec)|yesterday|today|tonight|last (?:night|week)|"
        r"this (?:morning|week|afternoon))\w*",
    ),
    # --- special categories
    _phrase(
        "special.orientation",
        "trans pronouns gender",
        rf"(?:{_IS}|as|being|came out as) (?:an? )?trans(?= (?:and|man|woman|boy|girl|"
        r"person|but|or|so|at)|[,.;!?]|$)|trans (?:wom[ae]n|m[ae]n|boy|girl|kid|person|"
        r"people|daughter|son|teen)",
        rf"{_HIS} (?:\w+ )?pronouns (?:are|to)|(?:change|changed|changing) "
        rf"{_HIS} (?:legal )?gender",
    ),
    _phrase(
        "special.religion",
        "kosher halal god allah jesus faith church mosque synagogue temple parish "
        "rabbi imam priest pastor hijab niqab burqa burka headscarf ramadan shabbat "
        "sabbath tithe tithes",
        r"(?:keep|keeps|kept|keeping|eat|eats|eating) (?:strictly )?(?:kosher|halal)",
        r"(?:believ(?:e|es|ed|ing)|faith|trust) in (?:god|allah|jesus)",
        rf"lost {_HIS} faith|{_HIS} (?:faith|church|mosque|synagogue|temple|parish|"
        r"rabbi|imam|priest|pastor|tithes?)",
        r"(?:wear|wears|wearing|wore|take off|remove) (?:the |a |my |her )?(?:hijab|"
        r"niqab|burqa|burka|headscarf)",
        r"(?:fast|fasts|fasting|observe|observes|observing|keep|keeps) (?:\w+ ){0,2}?"
        r"(?:ramadan|shabbat|sabbath)",
    ),
    _phrase(
        "special.ethnicity",
        "undocumented overstayed asylum",
        rf"(?:{_IS}|as an|being) (?:an )?undocumented(?! (?:function|api|feature|"
        rf"behaviou?r|method|option|in)\b)|overstayed {_HIS} visa|{_HIS} asylum",
    ),
    _phrase(
        "special.criminal",
        "year years month months drugs dealing possession",
        rf"(?:did|doing|served|serving|got) {_FEW} (?:years?|months?) (?:inside|behind "
        r"bars|for (?:\w+ )?(?:dealing|drugs?|possession|theft|assault|fraud|robbery|"
        r"murder|manslaughter|burglary|rape|battery|smuggling|trafficking))",
        r"(?:caught|busted|charged|arrested|convicted) (?:for|with|of) (?:\w+ )?"
        r"(?:dealing|possession)|(?:i|he|she) (?:deals?|dealt|sells?|sold) drugs",
    ),
    # --- money
    _phrase(
        "financial.balance",
        "balance account overdrawn overdraft",
        r"overdrawn (?:again|already|till|until|since|every)",
        r"(?:balance|account|overdraft)(?: \w+){0,3}? (?:at |of )?(?:[-\u2212]|minus |"
        r"negative )[$\u00a3\u20ac]? ?\d[\d,.]*|overdrawn by "
        rf"{_MONEY}|{_MONEY} overdrawn",
    ),
    _phrase(
        "topic.finance",
        "bankruptcy defaulted default collector collectors collections lost debt debts "
        "behind owe",
        rf"(?:filed|filing|file) for bankruptcy|defaulted on {_HIS}",
        r"(?:debt )?collectors? (?:says?|said|called|calls|claims?|keeps?|wants?)",
        rf"lost (?:about |around |over )?{_MONEY}(?: \w+){{0,4}}? (?:trading|crypto|"
        r"gambling|betting|poker|stocks|savings|casino|bitcoin)",
        rf"behind on {_HIS} (?:rent|mortgage|loan|payments|bills)|{_HIS} (?!tech)"
        r"(?:\w+ )?debts?",
    ),
    # --- privilege, inside information, export
    _phrase(
        "legal.privilege",
        "client clients counsel attorney attorneys lawyer lawyers solicitor barrister",
        r"(?:my|our) clients?[,]? (?:[\w'\u2019-]+,? ){0,5}?(?:confess(?:es|ed)?|"
        r"plead(?:s|ed|ing)?|pled|admit(?:s|ted)?|told (?:me|us)|lied|perjured)",
        r"(?:draft|memo|notes?|summary|prepared|written) (?:for|to) (?:our |the |my )?"
        rf"{_COUNSEL}|at the direction of {_COUNSEL}",
        rf"(?<!a )(?<!can )(?<!should ){_COUNSEL} (?:says?|said|told|advised|advises|"
        r"warned|recommended|thinks)",
    ),
    _phrase(
        "org.confidential",
        "public nobody announcement embargo embargoed inside insider mnpi nonpublic",
        r"not (?:be |yet )?(?:made |going )?(?:public|announced) (?:until|yet|before)",
        r"nobody (?:else |outside )?knows (?:about (?:it|this) )?yet(?=[,.;!]|$)|"
        r"nobody (?:else |outside )?knows(?=[.!]|$)",
        r"before (?:the|our) (?:public |official |press |earnings )?announcement",
        r"(?:under|press) embargo|embargoed (?:until|till)",
        r"(?:this is|i have|we have|i got|i['\u2019]?ve got) (?:\w+ )?(?:insider? "
        r"(?:information|info)|mnpi|(?:material )?non-?public)",
    ),
    _phrase(
        "org.confidential",
        "cut cutting axe axing shed shedding close closing",
        r"we(?: will|['\u2019]ll| are|['\u2019]re| plan to| have to)?(?: going to| "
        r"about "
        r"to)? (?:cut|cutting|axe|axing|shed|shedding|clos\w+) (?:\w+ ){0,2}?(?:people|"
        r"jobs|staff|roles|positions|heads|plants?|branches|stores|sites)(?! (?:hair|"
        r"costs))(?= (?:in|at|on|next|this|by|before|from)(?!\w)|[.,;]|$)",
    ),
    _phrase(
        "org.confidential",
        "q1 q2 q3 q4 lay laying layoffs",
        r"q[1-4] (?:revenues?|earnings|results|profits?|sales|numbers|figures) (?:will|"
        r"is going to|are going to) (?:miss|beat|fall|drop|be)",
        r"(?:we|we['\u2019]?re|management)(?: [\w'\u2019]+){0,4}? lay(?:ing)? off "
        r"(?:\w+ )?(?:\d|half|most)\w*",
    ),
    _phrase(
        "export.itar",
        "uranium plutonium centrifuge centrifuges missile missiles warhead warheads "
        "munition munitions vision",
        r"(?:my|our) (?:[\w-]+ ){0,3}?(?:uranium|plutonium|enrichment)",
        r"(?:ship|export|sell|send|deliver|smuggle|transfer)(?:ping|ing)? (?:my|our|"
        r"these|this|some|an?|\d+) (?:[\w-]+ ){0,4}?(?:centrifuges?|missiles?|"
        r"warheads?|munitions?|night[- ]vision)",
    ),
    # --- health: bodily functions, and procedures
    _phrase(
        "health.condition",
        "lump lumps shadow mass spot bleeding blood pus peeing pee poo stool wee "
        "weeing "
        "hair teeth skin nails lost loose falling swallow breathe breathing sleep "
        "sleeping "
        "feel walk stand see hear eat move concentrate cope stop down meal food wake",
        rf"(?:lumps?|mass|shadow|growth|spot) (?:in|on|under|behind) (?:{_HIS}|the|"
        r"one) "
        rf"(?:\w+ )?(?:{_BODY}|lungs?|liver|brain|scan)",
        r"(?:blood|pus) (?:in|on|from|when) (?:my|his|her|the) (?:\w+ )?\w+|(?:hurts?|"
        r"burn\w*|"
        r"sting\w*|blood) (?:when|to|every time) (?:i|he|she|we)?\s?(?:pee|wee|poo|"
        r"piss|eat|"
        r"swallow|walk|breathe)|(?:pee|wee|poo|piss)(?:ing)? (?:blood|every|all|at "
        r"night)",
        r"(?:hair|teeth|nails|skin)(?: (?:is|are|keeps?|to|starts?|started))? "
        r"(?:fall\w*|"
        r"com(?:e|ing) (?:off|out)|thinn\w+|peel\w*|gone)",
        r"(?:can['\u2019]?t|cannot|couldn['\u2019]?t|hardly|barely|haven['\u2019]?t|"
        r"hasn['\u2019]?t|not) "
        r"(?:\w+ ){0,2}?(?:sleep|slept|breathe|eat|eaten|walk|walked|stand|swallow|"
        r"concentrate|"
        r"cope|feel (?:my|his|her)|keep \w+(?: \w+)? down|kept (?:\w+ ){1,3}down|stop "
        r"(?:"
        r"crying|shaking|bleeding|drinking|coughing|throwing|washing|counting)|get "
        r"(?:out of "
        r"bed|it up))",
        r"(?:sleep|slept|sleeps|sleeping) (?:\w+ )?(?:\d|one|two|three|four) hours?|"
        r"(?:wakes?|"
        r"woke|waking)(?: up)? (?:screaming|sweating|choking|gasping|at (?:2|3|4|two|"
        r"three|"
        r"four))|stopped breathing",
    ),
    _phrase(
        "health.condition",
        "weigh weighs weighing calorie calories purpose skip skipping starve starving "
        "cut "
        "cuts cutting carve burn burned wrists arms scars razor blade bandage shallow",
        rf"weigh(?:s|ing|ed)? {_SELF}|count(?:s|ing|ed)? (?:every|all|my|her|his) "
        r"(?:\w+ )?"
        r"(?:calories?|bites?|meals?)|on purpose in|skip(?:s|ping|ped)? (?:meals|every "
        r"meal)|"
        rf"starv(?:e|es|ed|ing) {_SELF}",
        r"(?:cut|cuts|cutting|carv(?:e|ed|ing)|burn(?:s|ed|ing)?|scratch(?:es|ed|"
        r"ing)?) "
        rf"(?:{_SELF}|again|too deep|(?:my|his|her) (?:own )?(?:arms?|wrists?|legs?|"
        r"thighs?|"
        r"skin|stomach))|self-?harm\w*|razor blades? (?:in|under|on) my",
    ),
    _phrase(
        "health.condition",
        "drink drinks drinking drank drunk bottle sober wagon booze sponsor craving "
        "cravings "
        "meetings dealer dealers shoot shooting snort high using coke meth weed pills",
        r"(?:drink|drinks|drinking|drank) (?:alone|again|every|before (?:work|noon|"
        r"breakfast)|"
        r"a (?:bottle|litre|case|six-?pack)|too much|to (?:sleep|forget|cope)|in the "
        r"morning)|"
        r"first drink|off the wagon|on the wagon|hid(?:e|es|ing|den)? (?:the |my |her |"
        r"his )?"
        r"(?:bottles?|booze|vodka|wine|drinking)",
        r"(?:my|his|her) (?:sponsor|dealer|cravings?)|(?:shoot|shot|shooting) up|(?:on|"
        r"off|using|"
        r"doing|snort\w*|smok\w+|hooked on) (?:coke|meth|crack|smack|weed|pills|heroin|"
        r"crystal|"
        r"ketamine|fentanyl|benzos|oxy)",
    ),
    _phrase(
        "health.condition",
        "lines line along late period positive baby expecting due contractions water "
        "waters "
        "heartbeat trying birth miscarriage weeks pregnant test",
        r"(?:missed|skipped|late on) (?:my|her|a|two|three) periods?|(?:my|her) period "
        r"(?:is|has "
        r"been) (?:\w+ )?(?:late|missing)|(?:\d{1,2}|\w+) (?:weeks?|months?) (?:along|"
        r"gone|"
        r"pregnant|late)|(?:i am|i['\u2019]?m|she is|she['\u2019]?s|we['\u2019]?re|"
        r"told \w+ (?:i|she) was) "
        r"expecting(?! (?:a|an|the|that|to|it|you|your|some)\b)",
        r"lost (?:the|our|my|her|another) (?:baby|twins?|pregnancy)|no (?:fetal "
        r")?heartbeat|"
        r"(?:my|her) (?:waters? broke|due date|contractions)|trying (?:for a baby|to "
        r"conceive)|two (?:pink |blue |red )?lines",
        r"tested (?:positive|negative)|test(?:s)? (?:came back|was|is|were) "
        r"(?:positive|"
        r"negative|abnormal)|(?:i am|i['\u2019]?m|he is|she is|he['\u2019]?s|"
        r"she['\u2019]?s) (?:hiv |still "
        r")?(?:positive|undetectable)(?! (?:that|about|he|she|it|i)\b)",
    ),
    _phrase(
        "health.procedure",
        "drip dripped iv infusion infusions chemo round rounds cycle cycles off out "
        "tube bag "
        "stoma catheter drain port scan scans spread stitches amputate remove removed "
        "donor "
        "list kidney liver lung surgeon theatre knife transplant pads nappies diapers "
        "wheelchair prosthesis brace injections jab jabs shots inhaler pump patch "
        "tablets "
        "hospice palliative",
        r"drip(?:s|ped|ping)? (?:\w+ )?into (?:me|him|her|us)|hook(?:ed)? up to (?:a|"
        r"an|the)|"
        rf"(?:{_MANY}|first|second|third|last|next) (?:more )?(?:rounds?|cycles?|"
        r"infusions?|"
        r"sessions?) (?:done|of (?:chemo|radiation|ivf|treatment|it)|to go|left|failed|"
        r"in)",
        r"(?:take|takes|took|taken|taking|cut|cuts|chop\w*|saw\w*|remov\w+|"
        r"amputat\w+)(?: off| "
        rf"out)? (?:my|his|her) (?:\w+ )?(?:{_BODY}|womb|ovaries|ovary|prostate|spleen|"
        r"appendix|"
        r"gall ?bladder|tonsils|kidney|colon|thyroid|lung)|(?:my|his|her) (?:\w+ )?"
        rf"{_BODY} (?:off|out|removed|amputated|replaced|operated)",
        r"(?:tube|bag|line|drain|port|catheter|pins?|screws?|plates?|rods?|mesh|coil|"
        r"implant) "
        r"(?:in|into|out of|inside|through|down) (?:my|his|her|me|him)(?! (?:code|app|"
        r"server))",
        r"(?:scans?|tests?|biopsy|bloods|results?|doctors?|they) (?:lit up|show(?:s|"
        r"ed)? (?:a|"
        r"something|it|that)|came back (?:bad|positive|abnormal)|found (?:a (?:mass|"
        r"lump|"
        r"shadow|tumou?r|spot|clot)|something (?:on|in)))|it(?: has|['\u2019]s| had)? "
        r"spread(?: to| "
        r"again|$)|(?:that|where) it(?: has|['\u2019]s)? (?:spread|come back)",
        r"waiting list for an? (?:kidney|liver|heart|lung|transplant|cornea|pancreas)|"
        r"(?:in|"
        r"into|to) (?:a )?hospice|palliative care for (?:my|our|him|her)",
        rf"{_HIS} (?:\w+ )?(?:stoma|catheter|stitches|injections?|jabs?|shots|inhaler|"
        r"insulin "
        r"pump|patches|tablets|wheelchair|prosthesis|cpap|hearing aids?|nappies|"
        r"diapers|"
        r"walker|crutches|cast|sick leave|sick note|blood thinners?|night "
        r"sweats)(?!\w)",
    ),
    _phrase(
        "health.condition",
        "jump bridge alive exist burden wake dark voices watching following listening "
        "poisoning hits hit beats chokes choked choking slaps slapped punches punched "
        "kicks kicked afraid touched ghost empty numb point "
        "anymore note pills rope",
        r"jump (?:off|in front)|(?:not|don['\u2019]?t|didn['\u2019]?t)(?: want to)? "
        r"(?:be (?:here|alive)|"
        r"exist|wake up)(?: any ?more)?|(?:everyone|they)(?:['\u2019]d| would) be "
        r"better (?:off )?"
        r"without me|(?:am|i['\u2019]?m|being|be) a burden|(?:saving|saved|counting) "
        r"(?:up )?(?:my |"
        r"the )?pills|wrote (?:a|the|my) (?:goodbye|suicide) (?:note|letter)",
        r"(?:they|people|neighbou?rs|the (?:tv|radio)) (?:are |is |all |keep "
        r")?(?:watching|"
        r"following|listening to|talking about|poisoning|spying on|after) (?:me|us)",
        r"(?:he|she|my \w+|boyfriend|husband|wife|dad|mum|partner) (?:\w+ )?(?:hits?|"
        r"beats?|"
        r"chok(?:es|ed)|slap(?:s|ped)|punch(?:es|ed)|kick(?:s|ed)) (?:me|her|him|us|"
        r"the kids)",
    ),
    _phrase(
        "health.lab",
        "sugar level levels count numbers reading readings pressure potassium iron "
        "ferritin "
        "oxygen sats psa gfr egfr cd4 inr hb bmi",
        r"(?:my|his|her|our) (?:\w+ )?(?:sugars?|iron|ferritin|potassium|sodium|oxygen|"
        r"sats|psa|"
        r"e?gfr|inr|hb|bmi|cd4|white (?:cells?|count)|platelets?|liver (?:values|"
        r"enzymes)|kidney "
        r"function|readings?|bloods|viral load|numbers?)(?: (?:count|levels?|"
        r"values?))? (?:"
        r"is|are|was|were|went|came|keeps?|dropped|fell|rose|shot|at|of)(?!\w)",
    ),
    # --- special categories
    _phrase(
        "special.religion",
        "imam priest rabbi pastor vicar monk nun deacon church mosque witnesses "
        "mormons sect "
        "cult scientology believe believing baptised baptized pray prays praying "
        "prayer "
        "prayers ramadan lent eid sabbath shabbat passover hijab turban kippah "
        "missionary "
        "congregation sermon bible quran torah atheist kirpan faith temple synagogue "
        "amish brethren scientologists yom fast fasting god elder ordained confirmed "
        "confession",
        rf"{_HIS} (?:\w+ )?{_KIN} (?:is|was|became) (?:the |an? )?(?:imam|priest|rabbi|"
        r"pastor|"
        r"vicar|monk|nun|deacon|elder|missionary)",
        r"(?:left|leaving|quit|quitting|joined|joining|thrown out of|disfellowshipped "
        r"from) "
        r"(?:the |our |my |her |his )?(?:church|mosque|synagogue|temple|witnesses|"
        r"mormons|sect|"
        r"cult|congregation|faith|order|scientolog\w+|amish|brethren)",
        r"(?:don['\u2019]?t|doesn['\u2019]?t|no longer|stopped|quit) (?:really "
        r")?believ(?:e|es|ing)(?: any "
        r"?more| in (?:it|god|him)|[.,;!]|$| and)",
        r"(?:was|were|got|been|get|getting|be) (?:baptis\w+|baptiz\w+|confirmed in|"
        r"ordained|"
        r"excommunicated)|pray(?:s|ing|ed)? (?:five|at work|before|during|every|three|"
        r"together|"
        r"for forgiveness)|(?:my|his|her|our) (?:\w+ )?(?:prayers?|prayer (?:room|"
        r"times|mat|"
        r"breaks?)|bible (?:study|group)|quran|kippah|turban|kirpan|congregation|"
        r"sermon|"
        r"confession)",
        rf"(?:ramadan|lent|sabbath|shabbat|passover|yom kippur)(?: \w+){{0,4}} (?:and|"
        r"but|so) (?:i|"
        rf"we|he|she|{_HIS})|(?:i|we|he|she)(?:['\u2019]m| am|['\u2019]re| are|"
        r"['\u2019]s| is)? (?:fast\w*|keep\w*|"
        r"observ\w+|celebrat\w+)(?: \w+){0,3} (?:ramadan|lent|sabbath|shabbat|passover|"
        r"eid)",
    ),
    _phrase(
        "special.orientation",
        "both women men mums moms dads husbands wives dating kissed kissing crush man "
        "guy girl "
        "woman transitioning transitioned deadname binary born body closet drag grindr "
        "pride "
        "used surgery",
        r"(?:we['\u2019]?re|we are|i,?|are) both (?:women|men|girls|guys|female|male|"
        r"mums|moms|dads)|"
        r"(?:has|have|with) two (?:mums|moms|dads|mothers|fathers)|both of us (?:women|"
        r"men)",
        r"(?:dating|kiss(?:ed|ing)|seeing|slept with|sleeping with|crush on|in love "
        r"with) an? "
        r"(?:\w+ )?(?:man|guy|bloke|woman|girl)(?: \w+){0,2} (?:for the first time|too|"
        r"as well|"
        r"at \d\d|behind)|in the closet|(?:on|downloaded|use|using|his|my) grindr",
        r"(?:my|his|her|their) dead ?name|(?:born|trapped) in the wrong body|(?:top|"
        r"bottom) "
        r"surgery|used to be (?:called )?\w+,? (?:and )?(?:now|i['\u2019]?m)|(?:i|he|"
        r"she|they|son|"
        r"daughter|child)(?:['\u2019]s|['\u2019]m| is| am| are| has| have)? "
        r"(?:transition(?:ed|ing)|coming "
        r"out|came out|comes out)",
    ),
    _phrase(
        "special.criminal",
        "warrant inside prison jail bars time record expunged shoplifting warrants "
        "police feds officers offenders forged embezzled laundered hit fire conviction "
        "licence years months shoplifted "
        "stole "
        "stealing parole probation bail tag tagged ankle register offender raided raid "
        "cell "
        "locked charges custody caution police cops cuffs glove grams sentence "
        "sentenced "
        "released",
        r"(?:bench|arrest|outstanding|open) warrants?|warrants? (?:\w+ )?(?:out "
        r")?(?:for|on|"
        r"against) (?:me|my|him|her|us)",
        r"(?:did|doing|done|serv(?:ed|ing)|facing|got|gave (?:me|him|her)) (?:time(?= "
        r"(?:for|in|"
        rf"at|when|inside)|[,.;]|$)|(?:{_MANY}|eighteen|twelve|fifteen|twenty)(?: and "
        r"a half)? (?:"
        r"years?|months?)(?: \w+)? (?:in|at|for|inside|suspended|behind))|(?:got|get|"
        r"gets|came|"
        r"been|just) out (?:of (?:prison|jail|juvie|the joint)|on (?:bail|parole|"
        r"licence))",
        r"(?:on|breached|broke|violated|finished) (?:my |his |her )?(?:parole|"
        r"probation|bail|"
        r"remand|house arrest|licence conditions)(?! (?:office|period of))|(?:my|his|"
        r"her) "
        r"(?:parole|probation) officer|ankle (?:monitor|tag|bracelet)|(?:my|his|her) "
        r"(?:criminal "
        r"|juvenile )?(?:record|sentence|conviction|caution) (?:expunged|sealed|wiped|"
        r"is|was|"
        r"shows|from|for|ends)|(?:sex|registered) offender|on the register",
        r"(?:i|he|she|we|son|daughter|brother|husband) (?:\w+ )?(?:shoplift(?:s|ed)|"
        r"stole|"
        r"(?:hit|ran over) (?:a|an|someone)(?: \w+){0,3} and (?:drove|left|ran)|set "
        r"fire|forged|"
        r"embezzled|laundered)|(?:police|cops|feds|officers) (?:\w+ )?(?:came|took|"
        r"found|kept|"
        r"raided|stopped|searched|arrested|cuffed|want to (?:talk|speak|question)|are "
        r"looking) "
        r"(?:\w+ )?(?:me|my|him|his|her|us|our|for|to|with|the (?:house|car|flat))",
    ),
    _phrase(
        "special.ethnicity",
        "black brown asian arab roma traveller indigenous skin accent race colour "
        "color papers "
        "origin caste tribe refugee illegally visa permit status nationality surname "
        "foreign immigrant immigrants border muslim jewish latino african native "
        "illegal deported deportation immigration ice "
        "overstayed "
        "stateless",
        r"(?:only|first|one of the few|token) (?:black|brown|asian|arab|roma|traveller|"
        r"indigenous|native|african|latin\w*|muslim|jewish) (?:person|people|family|"
        r"kid|child|"
        r"woman|man|one|girl|boy|employee|couple|student|teacher|doctor)|as an? (?:\w+ "
        r")?(?:black|"
        r"brown|asian|arab|roma|traveller|indigenous|african) (?:\w+ )?(?:man|woman|"
        r"person|kid|"
        r"girl|boy|family|employee|student|mother|father)",
        r"because (?:of )?(?:i['\u2019]?m|i am|we['\u2019]?re|we are|he['\u2019]?s|he "
        r"is|she['\u2019]?s|she is|my|our|"
        r"his|her) (?:\w+ )?(?:black|brown|asian|arab|roma|race|skin|accent|colou?r|"
        r"origin|caste|"
        r"tribe|nationality|surname|foreign|immigrants?)",
        r"(?:no|without|fake|false) (?:valid )?papers(?! (?:on|about|were|that)\b)|"
        r"(?:my|his|her|"
        r"our|their) (?:papers|visa|residence permit|permit|status) (?:ran out|r?un "
        r"out|"
        r"expired|expires|lapsed|was (?:refused|denied|revoked))|(?:here|living|"
        r"working) "
        r"illegally|(?:ice|immigration|border \w+) (?:has|took|came|detained|picked|"
        r"arrested|"
        r"wants)|(?:get|got|getting|being|be|was|facing) deport\w+|(?:i|he|she|we) "
        r"overstayed",
    ),
    _phrase(
        "special.genetic",
        "gene genes carrier dna paternity ancestry 23andme mutation hereditary runs",
        r"carr(?:y|ies|ied|ying) (?:the|a|that) (?:\w+ )?(?:gene|mutation)|(?:i am|"
        r"i['\u2019]?m|she is|"
        r"he is|we are both|both of us) (?:an? )?carriers?|(?:my|his|her|our) (?:\w+ "
        r")?(?:dna|"
        r"paternity|ancestry|genetic|23andme)(?: (?:test|results?|kit|report))?|"
        r"(?:test|results?) "
        r"says? (?:\w+ ){1,3}(?:is|isn['\u2019]?t|is not) my (?:real |biological "
        r")?(?:dad|father|son|"
        r"child|daughter|brother)|runs in (?:my|our|his|her|the) family",
    ),
    _phrase(
        "special.politics",
        "voted vote votes voting rally party campaign canvass canvassing candidate "
        "donated "
        "protest demonstration march activist leaflets",
        r"(?:i|we|he|she|that (?:i|we)|husband|wife) (?:\w+ )?(?:vote(?:s|d)? (?:for|"
        r"against|"
        r"left|right|green|labour|tory)|canvass\w*|campaign\w* for|donated to|stood "
        r"for|joined "
        r"(?:the )?(?:party|movement)|went to (?:a|the) (?:rally|demo\w*|protest|"
        r"march))|(?:my|"
        r"his|her|our) (?:party membership|party card|politics|political views)|"
        r"(?:came|come|"
        r"comes|back) (?:home )?from (?:the|a) (?:rally|demo\w*|protest)",
    ),
    _phrase(
        "special.union",
        "union cards dues local strike striking picket organising organizing steward "
        "branch",
        r"organi[sz](?:e|ing) (?:the|my|our|a) (?:warehouse|shop|store|plant|office|"
        r"shift|site|"
        r"depot|drivers|workers|union)|(?:sign|signed|signing) (?:a |the |their |our |"
        r"my )?union "
        r"cards?|who signed (?:the )?cards|(?:my|our) (?:union )?dues|pay dues|(?:i|we|"
        r"he|she)(?: "
        r"am|['\u2019]m|['\u2019]re| are| is| was| were| went| want to go)? on strike|"
        r"picket line|shop "
        r"steward (?:at|in|for) (?:my|our)|(?:my|our) union (?:rep|branch|card|work)",
    ),
    _phrase(
        "special.sex_life",
        "open marriage relationship threesome cheated cheating affair affairs swingers "
        "onlyfans nudes sexting escort brothel sleeping virginity condom slept",
        r"(?:my|our|an|in an) (?:\w+ )?open (?:marriage|relationship)|(?:i|he|she|wife|"
        r"husband|"
        r"partner) (?:\w+ )?(?:cheated(?! (?:on|at|in) (?:a|the|my|his|her) (?:test|"
        r"exam|game))|"
        r"has affairs|had an affair|sells? nudes|sent (?:\w+ )?nudes|slept around|went "
        r"to (?:a "
        r"brothel|an escort))|having an affair|(?:my|her|his) (?:onlyfans|nudes|"
        r"virginity|"
        r"affair|mistress)|(?:condom|pill) (?:broke|failed)|people i slept with",
    ),
    # --- money
    _phrase(
        "financial.income",
        "bring brings take takes make makes earn earns clear net gross pay paid salary "
        "wage "
        "wages benefits pension month year week hour",
        r"(?:bring|take|make|earn|clear|net|gross|get)(?:s|ing)?(?: home)? (?:about |"
        r"around |only "
        rf"|just |maybe |roughly )?{_MONEY}(?: \w+)? ?(?:a|per|each|every|/) ?(?:month|"
        r"year|week|"
        r"fortnight|hour|day)",
        r"(?:net|gross|take-?home|before tax|after tax)(?: pay)?(?: is| of|:)? "
        rf"{_MONEY}|{_MONEY} "
        r"(?:net|gross|after tax|before tax|take-?home)",
        r"(?:my|his|her|our) (?:\w+ )?(?:pension|benefits?|pay|wages?|salary|income|"
        r"allowance)"
        rf"(?: \w+)? (?:is|are|was|of|comes to|went|got) (?:\w+ )?{_MONEY}",
    ),
    _phrase(
        "topic.finance",
        "rent mortgage loan loans debt debts owe owes owed owing savings overdraft "
        "bills "
        "behind arrears bailiff bailiffs repo repossess repossessed repossessing "
        "evicted "
        "foreclosure payday maxed collections irs hmrc taxes tax garnish garnished "
        "paycheck "
        "wages inherited inheritance inherit left will pension alimony maintenance "
        "gambling "
        "gambled bookie casino slots betting bet crypto coin afford broke insolvent "
        "bankrupt "
        "iva payroll pawn pawned handout food bank benefits turned declined refused "
        "cards "
        "card credit",
        r"(?:rent|mortgage|loan|car payment|bills|debts?|alimony|maintenance|child "
        r"support|"
        r"nursery)(?: \w+)? (?:is|are|costs?|eats?|comes? to|takes?) (?:\w+ "
        rf")?{_MONEY}",
        rf"(?:ow(?:e|es|ed|ing))(?: [\w'\u2019]+){{0,4}}? (?:{_SUM}|\d{{3,}})|"
        rf"{_SUM}(?: \w+){{0,3}} (?:in "
        r"debt|of debt|in the red|overdrawn|behind|in arrears)",
        rf"(?:{_MANY}|an?) (?:months?|weeks?|payments?|instal?ments?) (?:behind|late|"
        r"in arrears|"
        r"overdue|missed)|behind (?:with|on) (?:the|my|our|council|every)|missed "
        r"(?:\w+ ){0,2}?(?:"
        r"payments?|instal?ments?|rent)|in arrears",
        r"bailiffs?|repo(?:ssess\w*| man)|payday loans?|max(?:ed)? out|(?:went|gone|"
        r"sent|in|to) "
        r"(?:to )?collections|garnish\w+|(?:declared|going|went|am|i['\u2019]?m|"
        r"we['\u2019]?re|personally) "
        r"(?:bankrupt|insolvent|broke)|food bank|make ends meet|pay ?check to pay "
        r"?check|living "
        r"on (?:credit|benefits)|can['\u2019]?t (?:afford|pay|make) (?:the|my|our|his|"
        r"her|rent|"
        r"payroll)|cannot (?:afford|pay|make) (?:the|my|our|rent|payroll)|pawn(?:ed)? "
        r"(?:my|the)",
        r"(?:irs|hmrc|tax ?man|tax (?:office|authority)|inland revenue)(?: \w+){0,2} "
        r"(?:wants?|"
        r"says?|sent|audit\w*|letter|after|claims?|took)|(?:letter|bill|notice|call) "
        r"from (?:the "
        r")?(?:irs|hmrc|tax)|back taxes|ow(?:e|ed) (?:the )?(?:irs|hmrc|tax)|"
        r"(?:haven['\u2019]?t|never|"
        r"didn['\u2019]?t) (?:file|filed|declare|declared|pay|paid) (?:\w+ )?(?:tax|"
        r"taxes|vat)",
        r"(?:left|leaves|leaving|gave|lent|loaned|owes) (?:me|us|him|her|my \w+) "
        r"(?:about )?"
        rf"{_SUM}|inherit\w*(?: \w+){{0,3}} {_SUM}|(?:pension|savings|nest egg|isa|"
        r"401k|portfolio|"
        rf"retirement)(?: \w+){{0,2}} (?:is|of|are|has|at|worth) {_MONEY}",
        r"(?:put|sank|lost|bet|blew|gambled|spent|invested) (?:away )?(?:all |half "
        r")?(?:my|our|"
        r"his|her|the kids['\u2019]?) (?:\w+ )?(?:savings|fund|money|pension|"
        r"inheritance|wages|"
        r"salary|deposit)|gambl(?:ed|ing) (?:away|debts?|problem)|(?:bookie|casino|"
        r"slots)(?: "
        r"\w+){0,2} (?:has|have|took|got|cost)",
        r"(?:turned down|refused|rejected|denied) (?:for )?(?:an?|the|my|our|by the) "
        r"(?:\w+ )?"
        r"(?:mortgage|loan|credit card|remortgage|overdraft|bank)|(?:out of|from) "
        r"(?:my|his|her|"
        r"our) (?:pay ?check|wages|pay packet|salary)",
    ),
    # --- law
    _phrase(
        "topic.legal",
        "judge court magistrate jury hearing trial served papers suing sue sued sues "
        "lawsuit "
        "charges custody restraining order protective plea plead pled guilty contest "
        "evict "
        "evicted eviction landlord locks divorce settlement deposition testify witness "
        "subpoena notarise notarize will asylum visa visitation cps guardian "
        "injunction "
        "trespass settled",
        r"(?:judge|court|magistrate|jury|prosecutor|d\.?a\.?) (?:\w+ )?(?:gave|ordered|"
        r"said|wants|"
        r"granted|denied|ruled|offered|sentenced|fined|took|awarded|let)|(?:my|his|her|"
        r"our) "
        r"(?:\w+ )?(?:court (?:date|case|hearing)|hearing|trial|sentencing|deposition|"
        r"lawsuit|"
        r"plea|appeal|asylum (?:case|claim|interview)|custody (?:case|battle|"
        r"hearing))(?!\w)",
        r"(?:got|been|was|were|getting|just) (?:served|sued|summoned|subpoenaed|"
        r"deposed|called "
        r"for jury)|served (?:with|me|him|her)|served papers|su(?:e|es|ed|ing) (?:me|"
        r"us|him|"
        r"her|my|our)|(?:press|presses|pressing|pressed|drop|dropped) charges",
        r"(?:full|sole|joint|shared|lose|losing|lost|wants|fight\w* for|give up) "
        r"custody|"
        r"visitation (?:rights|with)|(?:restraining|protective|non-molestation) order|"
        r"(?:cps|"
        r"social services) (?:came|took|wants?|is|are|removed|called)",
        r"(?:take|took|taking|offered|reject\w*) (?:the|a) plea|plea (?:deal|bargain|"
        r"offer)|(?:"
        r"plead\w*|pled) (?:guilty|not guilty|no contest)|no contest",
        r"(?:evict\w*|kick\w* out|throw\w* out) (?:me|us|my|him|her)|(?:got|been|being|"
        r"getting|"
        r"be) evicted|(?:got|received|have|with) (?:an? |the )?(?:eviction|section 21) "
        r"notice|"
        r"changed the locks|lied (?:under oath|in court|on (?:my|the|his|her) (?:\w+ )?"
        r"(?:deposition|statement|affidavit|form|application))",
        rf"(?:{_HIS}) (?:divorce|prenup|separation|settlement|will)(?! (?:be|to|not|"
        r"have|make|"
        r"get|you|it|go)\b)",
    ),
    # --- work
    _phrase(
        "topic.hr",
        "offer contract",
        r"(?:firm|company|employer|they|boss|hr|hospital|school)(?: has| have|'s)? "
        r"(?:withdr[ae]w\w*|withdrawn|rescind\w*|pulled|revok\w+|cancell?ed) (?:its|"
        r"the|my|their|his|her) (?:job )?(?:offer|contract)",
    ),
    _phrase(
        "topic.hr",
        "performance pip warning hr resources fired sacked dismissed demoted redundant "
        "redundancy suspended go laid promotion notice quit paycheck severance "
        "misconduct "
        "grievance harassed harassing harassment bullied bullying touched touches "
        "touching "
        "boss manager supervisor drunk raise written wrote hostile whistleblower "
        "contract "
        "probation tribunal compete discriminated",
        r"(?:put|am|i['\u2019]?m|on|onto|placed) (?:\w+ ){0,2}?(?:an? |my "
        r")?(?:performance (?:improvement "
        r")?plan|pip)(?!\w)|(?:written|final|verbal) warning|(?:wrote|write|written) "
        r"(?:me|him|"
        r"her|us)? ?up|hr (?:called|wants|says|said|is|has|meeting|emailed|told|"
        r"opened)|(?:called|"
        r"hauled|meeting|complain\w*) (?:\w+ )?(?:to|by|into|with|in to) hr",
        r"let (?:me|him|her|us|them|\w+ and \w+) go(?= |[.,;!?]|$)|(?:laid|laying|lay) "
        r"(?:me|him|"
        r"her|us|them|people)? ?off|(?:was|were|am|i['\u2019]?m|been|being|getting|get|"
        r"got|gets|be) (?:"
        r"\w+ )?(?:fired|sacked|dismissed|demoted|laid off|made redundant|suspended|"
        r"let go|"
        r"furloughed|passed over|bullied|harassed)|the (?:sack|chop)(?!\w)|(?:fired|"
        r"sacked|"
        r"demoted|suspended|dismissed) (?:me|him|her|us)|since the (?:redundancy|"
        r"layoffs?)",
        r"(?:quit|quitting|resigned|resigning|walked out)(?: \w+){0,2} (?:without "
        r"notice|my job|on "
        r"the spot|last|yesterday|today|on|tomorrow)|(?:last|final|missing) pay ?check|"
        r"(?:my|"
        r"his|her) (?:\w+ )?(?:severance|notice period|non-?compete|grievance|tribunal|"
        r"disciplinary|redundancy|appraisal|performance review|probation(?:ary)? "
        r"period)",
        r"(?:my|our|her|his) (?:\w+ )?(?:boss|manager|supervisor|foreman|team ?lead|"
        r"colleague|"
        r"co-?worker|ceo|director)(?: \w+){0,2} (?:touch\w*|grop\w+|yell\w*|scream\w*|"
        r"shout\w*|"
        r"threat\w+|bull\w+|harass\w*|hit|hates|fired|humiliat\w+|blam\w+|lies|lied|"
        r"steals|"
        r"stole|groomed|flirt\w*|propositioned|denied|refuses|retaliat\w+)|gross "
        r"misconduct|"
        r"wrongful(?:ly)? (?:dismiss\w*|terminat\w*)|hostile (?:work|environment)",
        r"(?:came|comes|come|showed up|shows up|turned up|turns up|was|is) (?:\w+ "
        r")?(?:to|at) "
        r"work (?:\w+ )?(?:drunk|high|hungover|stoned)|drunk (?:at|on) (?:work|the job|"
        r"shift)|"
        r"(?:let|letting|lay|laying|sack|sacking|fire|firing|cut|cutting)(?: "
        r"[\w'\u2019]+){1,4}? "
        rf"(?:go|off|loose)(?: \w+){{0,2}} {_SOON}",
    ),
    # --- privilege and inside information, as people phrase it
    _phrase(
        "legal.privilege",
        "solicitor lawyer attorney barrister counsel client stand knife gun body "
        "weapon "
        "notary defend defending defendant opposing",
        r"(?:i['\u2019]?m|i am|as|acting as) (?:his|her|their|the|the client['\u2019]s|"
        r"defen[cs]e) (?:"
        r"solicitor|lawyer|attorney|barrister|counsel|notary)|(?:opposing|other "
        r"side['\u2019]?s?|"
        r"plaintiff['\u2019]?s|defen[cs]e) (?:counsel|lawyers?|attorneys?) (?:\w+ "
        r")?(?:offered|says?|"
        r"said|wants?|proposed|called|sent|filed)",
        r"(?:my |our |the )?client(?:s)? (?:\w+ )?(?:says?|said|swears|claims|admits|"
        r"told me|"
        r"insists|denies) (?:that )?(?:he|she|they|it was(?:n['\u2019]?t)? (?:him|her|"
        r"them))(?!\w)|"
        r"(?:my|our) (?:client|guy) (?:wants to (?:plead|take|settle|testify|appeal|"
        r"sue)|won['\u2019]?t "
        r"(?:settle|plead|testify)|did it|killed|lied|is guilty)|put (?:him|her|my "
        r"client|them) "
        r"on the stand|(?:he|she|client) told me (?:\w+ ){0,4}?(?:where|that) the "
        r"(?:\w+ )?(?:"
        r"knife|gun|body|weapon|money|drugs)",
    ),
    _phrase(
        "org.confidential",
        "guidance consensus estimates forecast expectations announcement announce "
        "announced "
        "announcing release filing earnings call acquisition acquire acquiring "
        "acquired "
        "merger merging buying bid takeover resigns resigning steps stepping auditors "
        "audit "
        "restate readout endpoint recall breach layoffs launch ipo tender board "
        "investors "
        "press",
        r"(?:revenue|sales|earnings|profits?|margins?|ebitda|numbers|eps|results|"
        r"bookings|"
        r"figures)(?: [\w'\u2019%.,]+){0,6}? (?:under|below|above|over|ahead of|short "
        r"of|"
        r"beat|miss\w*|"
        r"against) (?:\w+ )?(?:guidance|consensus|estimates|forecast|expectations|plan|"
        r"the "
        r"street|target)",
        rf"(?:before|until|till|ahead of) (?:{_DAY}['\u2019]?s?|tomorrow['\u2019]?s?|"
        r"next week['\u2019]?s?|the) "
        r"(?:\w+ )?(?:release|announcement|filing|earnings(?: call)?|readout|results "
        r"call|press "
        r"release)(?! notes)",
        r"(?:announce(?:s|d|ment)?|goes public|go public|public|out|release|signing|"
        r"closing) "
        r"(?:is |comes |goes out |follows )?(?:not )?(?:until |before |only )?(?:on "
        rf")?(?:{_DAY}|"
        r"the \d{1,2}(?:st|nd|rd|th)?|tomorrow|next week)(?= |[.,;!?]|$)(?<!public "
        r"holiday)",
        r"(?:we|company|board|group|management)(?:['\u2019]re| are| is|['\u2019]ll| "
        r"will)? (?:secretly |"
        r"quietly |about to |going to )?(?:acquir\w+|buying|buy|merg\w+ with|taking "
        r"over|tak\w+ "
        r"over|selling|sell off|bidding for|spinning off|restat\w+) (?:our|a|the|its|"
        r"their) "
        r"(?:\w+ ){0,3}?(?:competitor|rival|company|division|subsidiary|unit|accounts|"
        r"results|"
        r"supplier|startup|business|stake)",
        r"(?:ceo|cfo|coo|chair(?:man|woman)?|founder|president|managing director) "
        r"(?:is |will "
        r"(?:be )?|to )?(?:resign\w*|leav\w+|step\w* down|retir\w+|fired|out|"
        r"quit\w*)(?: \w+)? "
        rf"{_SOON}|auditors? (?:won['\u2019]?t|will not|refus\w+|resigned|found|"
        r"flagged|question\w*)|"
        r"(?:trial|study|drug|phase (?:two|three|2|3|ii|iii))(?: \w+){0,2} (?:missed|"
        r"failed|met|hit) "
        r"(?:its|the)(?: primary| secondary)? endpoint",
    ),
)
