"""Answers of ten kinds, as tokens with the delays of a model: what could leak.

The texts are ours. Each answer of a kind is put together from the kind's
passages, another choice and another length each time, and is cut into tokens
about as byte-pair encodings cut: common words whole, long ones in pieces, digits
by threes, marks alone. Models are quicker where a text is easy to foresee (drafts
of many tokens are accepted at once), so pauses have a pattern for each kind.
"""

import re
from dataclasses import dataclass, field
from typing import Final

import numpy as np

ANSWERS: Final = 20
"""Of each kind."""
MIN_TOKENS, MAX_TOKENS = 120, 260
_TOKEN = re.compile(
    r" ?[^\W\d_]{1,7}|[^\W\d_]{1,7}|\d{1,3}| ?[^\w\s]+|_|\n+ *|\s", re.UNICODE
)

PASSAGES: Final[dict[str, tuple[str, ...]]] = {
    "code": (
        "def area(width: int, height: int) -> int:\n    return width * height\n\n",
        (
            "for index in range(len(rows)):\n    if rows[index] is None:\n"
            "        continue\n    total += rows[index]\n\n"
        ),
        "class Box:\n    def __init__(self, all):\n        self.items = list(all)\n\n",
        "try:\n    value = int(text)\nexcept ValueError:\n    value = 0\n\n",
        "with open(path) as file:\n    data = file.read()\nprint(len(data))\n\n",
        "result = {key: value for key, value in pairs if value > 10}\n\n",
        "assert area(3, 4) == 12\nassert area(0, 9) == 0\n\n",
        (
            "while queue:\n    node = queue.pop()\n    seen.add(node)\n"
            "    queue.extend(graph[node] - seen)\n\n"
        ),
    ),
    "list": (
        "- flour, two cups\n- sugar, half a cup\n- a pinch of salt\n",
        "1. Unplug the kettle.\n2. Let it cool.\n3. Fill it with vinegar.\n",
        "- tent and pegs\n- a lamp\n- dry matches\n- two blankets\n",
        "- Monday: soup\n- Tuesday: rice\n- Wednesday: beans\n",
        "4. Wait an hour.\n5. Rinse it twice.\n6. Boil clear water once.\n",
        "- red\n- green\n- blue\n- a little yellow\n",
        "* book the room\n* invite the guests\n* bake the cake\n",
        "- screws\n- a saw\n- sandpaper\n- oil for the wood\n",
    ),
    "poem": (
        "The hedge keeps still, the gate is wet,\nthe swallows are not going yet.\n\n",
        "O little house of stone and lime,\nyou count for nobody the time.\n\n",
        "A lamp, a chair, a folded coat,\na moth, a very small grey boat.\n\n",
        "I walked the field from end to end\nand every furrow was a friend.\n\n",
        "Snow falls upon the orchard wall\nand makes no promises at all.\n\n",
        "The river says what rivers say:\nthat what was here has gone away.\n\n",
        "Sleep, bell; sleep, tower; sleep, town,\nthe moon has put the basket by.\n\n",
        "My father planted seven trees\nand hung a hat on each of these.\n\n",
    ),
    "medical": (
        "Hypertension is diagnosed when repeated measurements exceed 140/90 mmHg. ",
        "Adverse reactions include gastrointestinal discomfort and bradycardia. ",
        "Echocardiography demonstrated a moderately reduced ejection fraction. ",
        "Anticoagulation with apixaban should be reassessed after three months. ",
        "Contraindications comprise hepatic insufficiency and thrombocytopenia. ",
        "Differential diagnoses are pericarditis, pneumothorax and embolism. ",
        "Postoperative immobilisation increases the probability of thrombosis. ",
        "Immunosuppressed patients require prophylactic antimicrobial therapy. ",
    ),
    "law": (
        (
            "Notwithstanding paragraph 2, the lessee shall be liable for all damage "
            "arising out of the use of the premises. "
        ),
        (
            "The contracting party may terminate this agreement by written notice "
            "of not less than thirty days. "
        ),
        (
            "Pursuant to Article 17, the controller shall without undue delay erase "
            "the data concerned. "
        ),
        (
            "Any dispute hereunder shall be submitted to the exclusive jurisdiction "
            "of the courts of the seller. "
        ),
        "The provisions of section 4(b) apply mutatis mutandis to subcontractors. ",
        "Nothing herein shall be construed as a waiver of any right or remedy. ",
        "The guarantor undertakes jointly and severally to indemnify the creditor. ",
        "Consideration having been received, the parties hereby agree as follows. ",
    ),
    "small talk": (
        "Oh, that is so nice to hear! ",
        "I am fine, thanks, and you? ",
        "Yes, it is a bit cold, is it not? ",
        "Ha, I would have done the same. ",
        "Well, we can go for a walk later on. ",
        "Did you see the game? I did not. ",
        "No way! Tell me all of it. ",
        "I like tea too, with a lot of milk. ",
        "So, what do you do on a day off? ",
        "Good luck with it, and say hi to her. ",
    ),
    "table": (
        "| item | price | left |\n| --- | ---: | ---: |\n",
        "| chair | 49.90 | 12 |\n| table | 189.00 | 3 |\n",
        "| lamp | 24.50 | 131 |\n| shelf | 75.25 | 18 |\n",
        "| 2021 | 1,204 | 17 % |\n| 2022 | 1,377 | 14 % |\n",
        "| north | 0.82 | 0.79 |\n| south | 0.91 | 0.88 |\n",
        "| Ann | 31 | yes |\n| Bob | 29 | no |\n| Eve | 44 | yes |\n",
        "| 08:15 | 09:40 | 85 |\n| 10:15 | 11:35 | 80 |\n",
        "| total | 338.65 | 164 |\n",
    ),
    "translation": (
        "Der Hof ist von einer niedrigen Mauer umgeben, hinter der Obstbäume stehen. ",
        "Sie müssen das Formular bis zum Ende des Monats unterschrieben zurücksenden. ",
        "Die Öffnungszeiten der Gemeindeverwaltung haben sich geändert. ",
        "Wir würden gerne wissen, ob das Zimmer noch verfügbar ist. ",
        "Zwischen den beiden Häusern verläuft ein schmaler, gepflasterter Weg. ",
        "Bitte beachten Sie die Sicherheitshinweise auf der Rückseite. ",
        "Gestern hat es so stark geregnet, dass der Bach über die Ufer trat. ",
        "Die Übersetzung wurde sorgfältig geprüft und anschließend veröffentlicht. ",
    ),
    "maths": (
        "Let x = 3 and y = 4; then x^2 + y^2 = 9 + 16 = 25. ",
        "So 12 * 17 = 204, and 204 / 6 = 34. ",
        "The sum 1 + 2 + ... + n is n(n + 1)/2. ",
        "Hence f'(x) = 6x^2 - 4x + 1 and f'(1) = 3. ",
        "If a < b and c > 0, then ac < bc. ",
        "We get 2^10 = 1024 > 1000 = 10^3. ",
        "P(A or B) = 0.3 + 0.4 - 0.12 = 0.58. ",
        "The roots are x = (5 +- 1)/2, so 3 and 2. ",
    ),
    "letter": (
        "Dear Mrs Hollis,\n\nthank you for your kind letter of last week. ",
        "I am writing to apply for the position that you advertised in March. ",
        "It would give us great pleasure to welcome you at our annual dinner. ",
        "Unfortunately the parcel arrived damaged, and I should like a replacement. ",
        "Please find enclosed the documents that you asked for. ",
        "I have worked as a gardener for nine years and enjoy the work very much. ",
        "We regret to inform you that the concert has been postponed. ",
        "I look forward to hearing from you.\n\nYours sincerely,\nMartin Oakes\n",
    ),
}
KINDS: Final = tuple(PASSAGES)

_DRAFTED: Final = dict(
    zip(KINDS, (0.7, 0.6, 0.1, 0.2, 0.3, 0.5, 0.8, 0.15, 0.4, 0.25), strict=True)
)
"""Share of tokens that come together with the one before, for each kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One answer to be played.

    Attributes:
        kind: the number of its kind.
        tokens: their texts.
        due: when each is said, as a share of an average pause, from the start.
    """

    kind: int
    tokens: tuple[str, ...] = field(repr=False)
    due: tuple[float, ...] = field(repr=False)


def answers() -> list[Played]:
    """Return all answers, the kinds taking turns; the same at every call."""
    return [
        _answer(kind, number) for number in range(ANSWERS) for kind in range(len(KINDS))
    ]


def _answer(kind: int, number: int) -> Played:
    draw = np.random.default_rng((kind, number))
    passages = PASSAGES[KINDS[kind]]
    count = int(draw.integers(MIN_TOKENS, MAX_TOKENS))
    tokens: list[str] = []
    while len(tokens) < count:
        for place in draw.permutation(len(passages)):
            tokens += _TOKEN.findall(passages[int(place)])
    drafted = draw.random(count) < _DRAFTED[KINDS[kind]]
    pauses = np.where(drafted, 0.05, draw.lognormal(0.0, 0.4, count))
    return Played(
        kind=kind,
        tokens=tuple(tokens[:count]),
        due=tuple(float(moment) for moment in np.cumsum(pauses)),
    )
