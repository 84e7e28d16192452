"""Sentences that tell of somebody's own situation, and such that only ask.

For every topic: things that can be the case, ways people tell of them, and
questions about the same things that concern nobody. All are this project's own.
"""

import random  # training must repeat; nothing secret is drawn
from collections.abc import Iterator
from typing import Final

from examples import Example
from labels import TOPICS


def _list(text: str) -> list[str]:
    """Return what stands between the bars, each in one line."""
    return [" ".join(each.split()) for each in text.split("|")]


_THINGS: Final = {
    "health": _list("""
HIV | cancer | breast cancer | type 2 diabetes | depression | anxiety | panic
attacks | bipolar disorder | schizophrenia | PTSD | ADHD | autism | epilepsy |
asthma | migraines | high blood pressure | a heart attack | a stroke | arthritis |
lupus | multiple sclerosis | Parkinson's | dementia | Alzheimer's | hepatitis C |
tuberculosis | COVID | pneumonia | kidney stones | kidney failure | cirrhosis | an
ulcer | Crohn's disease | IBS | celiac disease | eczema | psoriasis | shingles |
herpes | chlamydia | endometriosis | PCOS | a miscarriage | infertility | an eating
disorder | anorexia | bulimia | insomnia | sleep apnea | chronic pain | a herniated
disc | a broken arm | a concussion | vertigo | hearing loss | glaucoma | an
overactive thyroid | anemia | leukemia | a brain tumor | melanoma | prostate
problems | erectile dysfunction | an alcohol problem | a drug addiction | withdrawal
symptoms | suicidal thoughts | self-harm urges | postpartum depression | a high
cholesterol | a blood clot | a stent | a pacemaker | dialysis | chemotherapy | an
abortion | a rash | a fever | a cough that won't stop | blood in the urine | chest
pain
"""),
    "special": _list("""
gay | lesbian | bisexual | transgender | queer | asexual | in the closet | a
practising Muslim | Jewish | a Jehovah's Witness | an atheist | a Sikh | a
Scientologist | Catholic | a union member | a shop steward | a member of the
communist party | a Republican | a socialist | undocumented | a refugee | Roma | of
African descent | biracial | an ex-convict | on parole | on probation | a registered
sex offender | a sex worker | polyamorous | a carrier of the BRCA1 mutation | HIV
positive | pregnant | convicted of theft | charged with assault | arrested for drunk
driving | intersex | a victim of rape | sexually abused
"""),
    "finance": _list("""
bankrupt | behind on the mortgage | in credit card debt | broke | drowning in
student loans | two months late with the rent | being chased by a collection agency
| earning 42,000 a year | on unemployment benefits | on food stamps | facing
foreclosure | denied a loan | in default on a car loan | overdrawn again | about to
inherit some money | paying alimony | audited by the tax office | owed back pay |
hiding savings from the family | losing money gambling | underwater on the house
"""),
    "legal": _list("""
being sued by a former partner | going through a divorce | in a custody fight |
subpoenaed | under investigation | about to sign a settlement | represented by a
public defender | in a dispute with the landlord | evicted | accused of fraud |
contesting the will | in arbitration with the employer | a witness in a trial |
served with a restraining order | facing deportation | negotiating a plea deal |
asking our lawyer for advice on this claim | under a gag order | in breach of a non-
compete | being deposed next week
"""),
    "hr": _list("""
fired | laid off | put on a performance improvement plan | passed over for promotion
| bullied at work | harassed by a manager | on maternity leave | on sick leave |
paid less than the men on the team | given a written warning | under review for
misconduct | interviewing elsewhere | thinking of quitting | denied a raise |
suspended without pay | written up for being late | burned out at work | demoted |
on a visa tied to the job | discriminated against by the boss
"""),
}
_HAVE_TELL: Final = _list("""
I was diagnosed with {} | I have {} | my wife has {} | My son was just diagnosed
with {} | my mother suffers from {} | the patient has {} | Patient reports {} | our
client is being treated for {} | I've had {} for two years | how do I tell my boss
about my {} | he is in hospital with {} | she takes medication for {} | I think I
have {} | I'm scared that I have {} | my employee is off work because of {} |
history of {}, on treatment | should I tell my date that I have {} | my results came
back: {} | living with {} is hard for me | my brother died of {} | After my {} I
could not work | they found {} in my dad | my therapist says it is {} | can I drive
with my {} | we lost the baby after {} | is it normal that my {} gets worse at night
| I stopped my pills and {} came back | my boss fired me because I have {} | my
insurance won't pay for my {} | the doctor told us it is {}
""")
_HAVE_ASK: Final = _list("""
What is {}? | what causes {} | Explain {} to a ten year old | history of research on
{} | symptoms of {} | how is {} treated | Write an essay on {} | How common is {}? |
Give me a list of books about {} | statistics on {} in Europe | is there a vaccine
against {} | Summarize recent studies on {} | define {} | what is the difference
between {} and flu | design a poster that raises awareness of {} | how do doctors
diagnose {} | which gene is linked to {} | Write a short story whose hero overcomes
{}
""")
_ARE_TELL: Final = _list("""
I am {} | I'm {} and nobody knows | my husband is {} | My daughter came out as {} |
my boss found out that I am {} | our employee is {} | the applicant is {} | she told
me she is {} | my client is {} | I was {} and need advice | he is {}, what should we
do | My coworker is {} | how do I tell my parents that I'm {} | my brother was {} |
because I am {} they treat me differently | my boss fired me because I am {} | my
family does not know I am {} | we are {} and afraid | the tenant is {} | can they
reject me for being {} | I think my son is {} | since I am {} I can't sleep
""")
_ARE_ASK: Final = _list("""
what does it mean to be {} | How many people are {}? | laws that protect people who
are {} | Write an article about people who are {} | famous novels about somebody who
is {} | explain what happens when a person is {} | history of people who were {} |
give tips for a company whose staff may be {} | how do courts treat people who are
{} | define: {} | what percentage of adults is {} | design a survey about being {}
""")
_NEUTRAL: Final = _list("""
I have a question about my printer | my dog ate my homework | I am learning Spanish
| we are planning a trip to the lake | my team needs a name | I want to write a song
| my code does not compile | I have two apples and a pear | our garden needs water |
I am tired of this game | my phone is slow | I'm looking for a recipe | I lost my
keys again | my car makes a strange noise | I need a new laptop | help me write my
essay on rivers | we have a meeting at nine | my favourite colour is blue | I am new
to Rust | I like long walks | my neighbour plays the piano | I would like to open an
account | I want to cancel my subscription | my order has not arrived | my flight
was delayed | I can't log in | my wifi is down | I forgot my password | I need to
exchange currency | please block my card
""")


def topic_examples(source: random.Random, count: int) -> Iterator[Example]:
    """Yield ``count`` sentences, about half of them about somebody."""
    names = list(_THINGS)
    for _ in range(count):
        topic = source.choice(names)
        thing = source.choice(_THINGS[topic])
        have = topic == "health"
        draw = source.random()
        if draw < 0.5:
            text = source.choice(_HAVE_TELL if have else _ARE_TELL)
            topics = dict.fromkeys(TOPICS, 0.0) | {topic: 1.0}
            text = text.format(thing)
            topics |= _overlap(topic, thing, text)
        elif draw < 0.85:
            text = source.choice(_HAVE_ASK if have else _ARE_ASK)
            text, topics = text.format(thing), dict.fromkeys(TOPICS, 0.0)
        else:
            text, topics = source.choice(_NEUTRAL), dict.fromkeys(TOPICS, 0.0)
        known = {name: value for name, value in topics.items() if value >= 0}
        yield Example(_varied(source, text), topics=known)


def _overlap(topic: str, thing: str, text: str) -> dict[str, float]:
    """Return further topics of a sentence; -1 means nobody knows."""
    more: dict[str, float] = {}
    if "boss" in text or "employee" in text or "coworker" in text:
        more["hr"] = -1.0 if topic != "hr" else 1.0
    if thing in {"HIV positive", "pregnant", "a victim of rape", "sexually abused"}:
        more["health"] = 1.0
    if topic == "health" and "insurance" in text:
        more["finance"] = -1.0
    if "client" in text or "lawyer" in text:
        more["legal"] = 1.0 if topic == "legal" else -1.0
    if thing.startswith(("convicted", "charged", "arrested", "on parole", "on prob")):
        more["legal"] = -1.0
    return more


_OPENINGS: Final = (
    "", "", "", "", "hi, ", "Hello. ", "so ", "please help: ", "Advice needed. ",
    "quick question: ", "Can you help me write a letter? ", "Draft an email: ",
    "ok here is the thing, ",
)  # fmt: skip
_ENDINGS: Final = (
    "", "", "", "", ".", "?", " What can I do?", " what now", ", any advice?",
    " Thanks!", " Keep it short.", " Please answer in two sentences.",
)  # fmt: skip


def _varied(source: random.Random, text: str) -> str:
    return source.choice(_OPENINGS) + text + source.choice(_ENDINGS)
