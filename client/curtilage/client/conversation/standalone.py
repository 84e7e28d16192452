"""Whether a question is understandable by itself, or continues what was said before.

For ``sticky: content``. Pure, English only, and designed to err on one side: a question
that is not clearly independent counts as a continuation. It knows words, not meaning:
a question about the same thing in words of another subject is not detected
(LIMITATIONS.md).
"""

import re
import unicodedata
from itertools import takewhile
from typing import Final

# Minimum number of informative words: "And in children?" has one, so its subject is
# somewhere else.
MIN_INFORMATIVE: Final = 2
_STEM_CHARS: Final = 6
_LEAST_STEM_CHARS: Final = 3
_TOKEN: Final = re.compile(r"[^\W_]+(?:['\u2019][^\W_]+)*|[.!?;:,\n]")
_SUFFIXES: Final = (
    *("ations", "ation", "ments", "ment", "ness", "ings", "ing", "ers", "ies", "ied"),
    *("ed", "er", "es", "ly", "s"),
)


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# They ask who, how or whether, and do not name a subject.
_FUNCTION: Final = _set(
    """
    a about above across after against all along although am among an and any anybody
    anyone anything are as at be because been before being below between both but by can
    cannot could did do does doing don't down during each either else every everybody
    everyone everything few for from get gets getting give given go goes going got had
    has have having he her hers herself him himself his how however i i'd i'll i'm i've
    if in into is isn't it it's its itself just least less let like made make makes many
    may me might mine more most much must my myself need needs neither no nobody none
    nor not nothing now of off often ok okay on once one only or other others our ours
    ourselves out over own per please quite rather really same shall she should since
    so some somebody someone something still such than thank thanks that that's the
    their theirs them themselves then there these they thing things this those though
    through thus to too under until up upon us use used uses using usually very want
    was way ways we well were what what's when where whether which while who whom whose
    why will with within without would yes yet you your yours yourself
    answer ask best better can't compare create describe detail details different draft
    easy example examples explain find first following generate good great help hello hi
    important know known kind list long mean means name new next number people person
    possible question questions quick quickly right say says short show simple tell text
    think time times two type types work works write
    """
)
# Words that refer to something said before. Some have harmless uses as well ("another
# word for happy"); these questions are kept local, too.
_REFERRING: Final = _set(
    """
    he he's he'd he'll him his himself she she's she'd she'll her hers herself it it's
    it'd it'll its itself they they're they've they'd they'll them their theirs
    themselves themself this these those one ones such same other others another also
    too again instead otherwise further furthermore moreover besides anyway still
    already else both either neither former latter previous previously earlier above
    aforementioned mentioned said discussed here then therefore hence so thus more less
    shorter longer simpler clearer better worse similar similarly likewise continue
    meanwhile afterwards afterward back though however alternatives alternative options
    option
    """
)
# Beginnings of an independent question; with any other word it may be the end of a
# sentence that began before ("Safe in summer?").
_TASKS: Final = _set(
    """
    list give write draft compose create generate explain describe define compare
    translate convert calculate compute solve simplify sort count recommend suggest plan
    design implement prove outline paraphrase brainstorm rank invent
    """
)
_ASKING: Final = _set(
    """
    what what's which who who's when where how why is are was were does do did can could
    should would will has have name show tell find please summarise summarize proofread
    """
)
_OPENERS: Final = _TASKS | _ASKING
_NO_NOUN: Final = _FUNCTION | _OPENERS
_SELF: Final = _set("I I'm I'd I've I'll")
_COPULA: Final = _set("is are was were")
_OF: Final = _set("of between from in for to")
# Things of which only one exists, or which the next word specifies.
_UNIQUE: Final = _set(
    """
    most least first second third fourth fifth last next main world internet web sun
    moon earth sky sea ocean weather future english german french italian spanish latin
    united us usa uk eu following north south east west
    """
)

# Health, family, law, work, money and belief: a question with one of these words cannot
# be distinguished from the kept content, whatever its subject.
_SENSITIVE: Final = _set(
    """
    abortion absence abuse abusive account ache activist acute addict addiction adhd
    adoption adultery adverse affair afford alcohol alimony allergic allergy
    alzheimer amputate annulment anorexia antibiotic antibody antidepressant
    antihistamine antiviral anxiety anxious appeal appetite arbitration arrears
    arrest arthritis assault asthma asylum atheist attorney audit aunt autism
    autistic baby bacteria bail bailiff bandage bank bankrupt bankruptcy baptism
    baptist barrister benefits bequest betting bible bill bills biopsy bipolar birth
    bisexual bishop bleed blind blood bone bonus booster borrow boss boyfriend brain
    breach breast breastfeed broker brother buddhist budget bulimia bully bullying
    calorie cancer cannabis capsule cardiologist caregiver carrier cash
    casino catholic celibate charge checkup chemo child cholesterol christian
    chronic church cigarette claim clinic closet clot cocaine collateral colleague
    collector coming communist compensation complaint complication conceive condom
    confession conservative contagious contraception contract contraindication
    convict conviction cope coping counsellor counselor court cousin
    coworker credit creditor crime criminal cure custody cv dad damages dangerous
    daughter dead deaf dealer dealing death debt deed defence defendant defense
    dementia demotion denomination dentist deport depress depressed depression
    dermatologist detention diabetes diagnose diagnosis die diet disability disabled
    disciplinary disclose discriminate discrimination disease dismiss dismissal
    disorder dividend divorce dizzy doctor dosage dose drink drug drunk dying earn
    earning emotional employee employer employment epilepsy estate ethnic ethnicity
    evangelical evict eviction evidence exercise expectancy expunge faith family
    fatal father fatigue felony fertility fever fiance fire fired firing foreclose
    foreclosure fraud friend gamble gambling garnish gay gender gene genetic germ
    girlfriend god granddaughter grandfather grandma grandmother grandpa grandson
    granny guard guardian guilty gynaecologist gynecologist hair hangover harass
    harassment harmful headache heal health healthy hearing heart heaven hell
    hereditary heredity heroin heterosexual hindu hire hired hiring holy homophobia
    homophobic homosexual hormone hospice hospital hr hurt husband ill illegal
    illness imam immigrant immigration immune income incurable indict infect
    infection infectious infusion inherit inheritance inject injection injunction
    inmate innocent insolvency insolvent insomnia insulin insurance insurer
    interaction interest interview intimate invest investment islam jail jew jewish
    job judge jury juvenile kid kidney koran lab landlord law lawful lawsuit lawyer
    layoff legal legalise legalize lender lesbian lgbt lgbtq liability liable life
    lifespan lifestyle limitation lithium live liver loan lottery lover lump lung
    mama manager mania manic marijuana marriage marry mediation medication medicinal
    medicine menopause mental metastasis mg midwife migraine milligram minority
    miscarriage misconduct misdemeanor mistress mom money monitor mood mormon
    morphine mortality mortgage mosque mother mum murder muslim nausea neighbor
    neighbour nephew neurologist niece notice nurse nutrition obesity obstetrician
    offence offense oncologist operation opiate opioid organ orientation orthodox
    outbreak outlook ovary overdose overdraft overdue overtime owe paediatrician
    pain painkiller palliative panic papa paralyse paralysis parent parkinson parole
    partner pastor paternity patient pay payday payment payroll pediatrician penalty
    pension percent performance period pharmacist pharmacy physician physiotherapy
    pilgrimage pill plaintiff plea plead police political politics poor portfolio
    poverty pray prayer pregnancy pregnant premium prescribe prescription pressure
    priest prison probate probation procedure prognosis promotion prosecute
    prosecution prosecutor prostate prosthesis protect protestant psychiatrist
    psychologist psychosis quarantine queer quit quran rabbi race racial radiation
    raise rape recover recovery recruiter redundancy reference refugee refund
    refusal rehab rehabilitation relapse relative religion religious remarry
    remission rent repay repayment repossess resign resignation restrain restraining
    retire retirement review risk roma sacred safe safety salaried salary savings
    scan scar schizophrenia sclerosis screening sedative seize seizure sentence
    sentencing separation settle settlement severance sex sexual shelter sibling
    sick sickness side sikh sin sister skin skull sleep sleeping slur smoke sober
    socialist solicitor son sore specialist spouse spread stalk statin statute steal
    steroid stigma stomach stroke subpoena subsidy sue sugar suicidal suicide
    supervisor supplement support surgeon surgery survival survive swell swelling
    symptom synagogue syndrome tablet tax taxes temple terminal terminate
    termination test testicle testify testimony theft therapist therapy thyroid
    tired tissue toddler torah traffic trans transgender transmission transmit
    transplant trauma treat treatment trial tribunal trimester tumor tumour twin
    ultrasound uncle unemployed unemployment union urine urologist uterus
    vaccination vaccine verdict violence violent viral virus visa visitation vitamin
    vomit vote voter wage ward warning warrant wealth wedding weed welfare
    wheelchair whistleblow whistleblower wife will withdrawal witness womb work
    workplace wound
    """
)


def words_of(text: str) -> frozenset[str]:
    """Return the stems of a text's informative words; not to be stored."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    words = (match[0].removesuffix("'s") for match in _TOKEN.finditer(folded))
    return frozenset(
        _stem(word)
        for word in words
        if word[0].isalnum() and word not in _FUNCTION and len(word) > 1
    )


def stands_alone(text: str) -> bool:
    """Return whether a question names its own subject, and refers to nothing else.

    False if this is uncertain: no English beginning, letters beyond ASCII, too few
    informative words, or one of a subject that may be confidential.
    """
    raw = [match[0] for match in _TOKEN.finditer(text)]
    words = [each.lower() for each in raw]
    if not text.isascii() or not words or words[0] not in _OPENERS:
        return False
    # "What about Vienna?", "Why not at night?"
    if words[1:2] in (["about"], ["if"], ["not"], ["else"], ["come"]):
        return False
    informative = words_of(text)
    if len(informative) < MIN_INFORMATIVE or not _REFERRING.isdisjoint(words):
        return False
    if not _SENSITIVE_STEMS.isdisjoint(map(_stem, words)):
        return False
        # A task is complete. A question without a subject may omit what is understood:
        # "How soon does a beard grow?" is asked by somebody, for a reason.
    named = (
        w for w in raw[1:] if (w[0].isupper() and w not in _SELF) or w[0].isdigit()
    )
    if words[0] not in _TASKS and not any(named):
        return False
    return not any(
        _refers(words, raw, at)
        for at, word in enumerate(words)
        if word in {"the", "that", "there"}
    )


def _refers(words: list[str], raw: list[str], at: int) -> bool:
    """Return whether this article or pronoun refers to something said before."""
    before, after = words[max(at - 1, 0) : at], words[at + 1 : at + 5]
    if not after or not after[0][0].isalnum():
        return True
    if words[at] == "there":
        # "is there a way", and not "what is sold there to all?"
        return _COPULA.isdisjoint((*before, after[0]))
    if words[at] == "that":
        # "a list that is sorted", and not "how common is that in summer?"
        return not before or before[0] in _NO_NOUN or not before[0].isalnum()
    # "the life expectancy" is that of the person mentioned before; "the capital of
    # France" is independent, as are "the Eiffel Tower" and "the best way".
    clause = list(takewhile(lambda word: word[0].isalnum(), after))
    return not (
        raw[at + 1][0].isupper()
        or clause[0] in _UNIQUE
        or clause[0].endswith("est")
        or not _OF.isdisjoint(clause[1:])
    )


def _stem(word: str) -> str:
    """Return the shortened stem of an English word.

    "diagnosed" and "diagnosis" become equal, and also some words that only share their
    beginning: then a question is kept local unnecessarily.
    """
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= _LEAST_STEM_CHARS:
            word = word.removesuffix(suffix)
            break
    if len(word) > _LEAST_STEM_CHARS:
        if word[-1] == word[-2]:
            word = word[:-1]
        word = word.removesuffix("e").removesuffix("y")
    return word[:_STEM_CHARS]


_SENSITIVE_STEMS: Final = frozenset(map(_stem, _SENSITIVE))
