"""What people say of themselves without the word that names it.

"I hear voices", "we keep kosher", "I did three years": no word of these is a
word of health, belief or crime. Each rule runs only where one of its words
is, reads lower-case text, and has gaps that are bounded. The lists are this
project's own.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrase:
    """One rule.

    Attributes:
        data_class: what a match tells of.
        words: one of them is in every text that the rule matches.
        pattern: what to look for in lower-case text.
    """

    data_class: str
    words: frozenset[str]
    pattern: re.Pattern[str]


def phrases_in(text: str, here: frozenset[str]) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield what each rule finds in a lower-case text that has these words."""
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
        rf"(?:draft|memo|notes?|summary|prepared|written) (?:for|to) (?:our |the |my )?"
        rf"{_COUNSEL}|at the direction of {_COUNSEL}",
        rf"(?<!a )(?<!can )(?<!should ){_COUNSEL} (?:says?|said|told|advised|advises|"
        r"warned|recommended|thinks)",
    ),
    _phrase(
        "org.confidential",
        "public nobody announcement embargo embargoed inside insider mnpi nonpublic",
        r"not (?:be |yet )?(?:made |going )?(?:public|announced) (?:until|yet|before)",
        r"nobody (?:else |outside )?knows (?:about (?:it|this) )?yet(?=[,.;!]|$)",
        r"before (?:the|our) (?:public |official |press |earnings )?announcement",
        r"(?:under|press) embargo|embargoed (?:until|till)",
        r"(?:this is|i have|we have|i got|i['\u2019]?ve got) (?:\w+ )?(?:insider? "
        r"(?:information|info)|mnpi|(?:material )?non-?public)",
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
)
