"""Extracts the request from a text: removes greetings, thanks and wrappers around it.

The same request can be worded in many ways: with or without a greeting, as
"Question: …", with line breaks or spaces, with or without a final mark. None of this
shows how hard it is, so the estimate is made without it. Pure, with bounded time.
"""

import re
from typing import Final

_MOST_SEGMENTS: Final = 6  # removed at either end

# A segment is removed if all of its words are in these lists, and at least one is in
# the first two.
_COURTESY: Final = frozenset(
    """
    hi hello hey dear greetings morning afternoon evening please pls plz kindly thanks
    thank thx ty cheers help assist assistance hand favour favor appreciated regards
    grateful wondering hoping
    hallo hi servus moin guten tag morgen abend bitte danke dank hilf hilfe helfen
    hilfst gruß grüße grüß unterstützen
    bonjour bonsoir salut coucou merci svp stp plaît plait aide aider aidez aides coup
    cordialement
    hola buenas buenos favor porfa porfavor gracias muchísimas ayuda ayudar ayudarme
    ayúdame ayudas saludos saludo
    ciao salve buongiorno buonasera piacere cortesia grazie aiuto aiutare aiutarmi
    aiutami aiutarti saluti mano
    hoi dag goedemorgen goedemiddag goedenavond goedendag alsjeblieft alstublieft aub
    bedankt dankjewel hulp help helpen helpt groet groeten alvast
    olá oi bom boa dia tarde noite obrigado obrigada ajuda ajudar ajudas ajude ajudinha
    abraço cumprimentos
    """.split()  # noqa: SIM905 - a list of words is read more easily in lines
)
_LABELS: Final = frozenset(
    """
    question q query task instruction instructions request prompt input user human
    answer a response output assistant
    frage aufgabe anweisung anfrage eingabe antwort ausgabe
    tâche consigne demande entrée réponse sortie
    pregunta tarea instrucción petición entrada respuesta salida
    domanda compito istruzione richiesta risposta
    vraag taak opdracht verzoek invoer antwoord uitvoer
    pergunta tarefa instrução pedido resposta saída
    """.split()  # noqa: SIM905
)
_SMALL: Final = frozenset(
    """
    i you he we me my your this that these it the a an of for to in on at and so very
    much many lot could can would will might may be is am are was were do does did have
    has need want like use some any with about following below here there quick short
    just really again advance good day all everyone team sir madam assistant bot
    question if know ask was d ll ve m s t
    ich du sie wir ihr mir mich dir dich ihnen uns das dies diese dieses dem der die ein
    eine einen einer hier dabei hiermit damit mal kurz kurze schnell schnelle schon
    wieder noch gern gerne sehr vielen viele liebe lieben lieber besten freundliche
    freundlichen könnte könnten könntest kann kannst können würde würdest würden möchte
    hätte habe brauche mit zu für im voraus und beim bei da alle zusammen frage frau
    herr
    je j tu t vous nous on m me moi te ce ceci cela ça c l le la les un une des d de du
    pour avec à en et bien beaucoup mille avance peux pourrais pouvez pourriez aurais
    aurai ai besoin voudrais voici tous toutes tout monde madame monsieur petit petite
    s il si est question
    yo tú usted me te le nos os lo la los las el un una unas que de con en para y a esto
    esta este eso por mucho muchas muy bien antemano adelantado puedes podrías puede
    podría necesito necesitaría quisiera eches echar echas tengo días tardes noches
    pregunta duda todos todas señor señora mil
    io tu lei mi ti le ci vi lo la il gli i un una uno di da con in per e a questo
    questa questi ciò molto tante mille anticipo puoi potresti può potrebbe serve
    servirebbe servirebbero vorrei avrei ho bisogno domanda tutti tutte signor signora
    dare darmi
    ik jij je u wij we mij me jou het dit dat deze de een hier hiermee daarmee mee bij
    met voor van op en heel erg zeer veel wel even snel korte kun kunt kan kunnen zou
    zouden wil wilt wat heb graag nodig gebruiken vraag vraagje vriendelijke allemaal
    mevrouw meneer
    eu tu você o a os as um uma me mim nos isto isso este esta de com em para e por
    muito muita desde já podes poderias pode poderia podias preciso precisava queria
    gostaria tenho pergunta dúvida todos senhor senhora se faz cordiais
    """.split()  # noqa: SIM905
)
_WORD: Final = re.compile(r"[^\W\d_]+")
_SEGMENT: Final = re.compile(r"[^\w\n]{0,8}([^.,:;!?\n>]{0,80})([.,:;!?\n>]+)(?!\w)\s*")
_LAST: Final = re.compile(r"(?:[.,;!?](?=\s)|\n)([^.,:;!?\n>]{0,80})([.,:;!?\s]*)$")
_LAST_LABEL: Final = re.compile(r"[\s#]+([^\W\d_]+)\s*(?::|->)\s*$")
# Thanks that no punctuation mark separates from the request.
_THANKS: Final = re.compile(
    r"[\s,.!?¡]+(?:(?:many|vielen|lieben|herzlichen|besten|muchas|muchísimas|muito|mille"
    r"|alvast|heel|erg|hartelijk) ){0,3}(?:thank you|thanks?|thx|cheers|danke?|merci"
    r"|gracias|grazie|dank (?:je|u)|dankjewel|bedankt|obrigad[oa]|please|bitte|stp|svp"
    r"|por favor|porfa|per favore|aub|alsjeblieft|alstublieft|se faz favor)"
    r"(?: (?:so much|very much|a lot|in advance|schön|sehr|im voraus|beaucoup|bien"
    r"|d'avance|de antemano|mille|in anticipo|wel|alvast|desde já))*[\s.,!?]*$"
)
_MARKS: Final = " .,?!\u2026'\"\u00bb\u201c\u201d\u2019"
_TAIL: Final = 90
# Polite beginnings of a request, without a mark after them.
_OPENING: Final = re.compile(
    r"\W{0,8}(?:(?:please|kindly|pls|plz|bitte|por favor|per favore|se faz favor)\s+"
    r"|(?:could|can|would|will) you (?:please |kindly |possibly )?"
    r"|i(?:'d| would) (?:like|need) you to |i (?:want|need) you to |help me (?:to )?"
    r"|(?:könntest|kannst|würdest) du (?:mir )?(?:bitte )?(?:mal )?"
    r"|(?:könnten|können|würden) sie (?:mir )?(?:bitte )?"
    r"|(?:peux-tu|pourrais-tu|tu peux|tu pourrais|pouvez-vous|pourriez-vous|vous pouvez"
    r"|est-ce que tu peux) (?:me )?|merci de "
    r"|(?:me )?(?:puedes|podrías|puede|podría) (?:por favor )?"
    r"|(?:mi )?(?:puoi|potresti|può|potrebbe) (?:per favore )?"
    r"|(?:kun|kan|zou|wil) je (?:me |mij )?(?:even |alsjeblieft )?"
    r"|(?:kunt|zou|wilt) u (?:mij )?(?:alstublieft )?"
    r"|(?:podes|podias|pode|poderia|você pode) (?:por favor )?)(?=\w)"
)
_BLANKS: Final = re.compile(r"\s+")


def request_in(lowered: str) -> str:
    """Return the request in a lowercase text, on one line, without its final mark.

    A text that consists only of courtesies is returned unchanged.
    """
    begin = _after_courtesy(lowered)
    rest = lowered[begin:] if _WORD.search(lowered, begin) else lowered
    rest = _before_courtesy(rest)
    return _BLANKS.sub(" ", rest).strip().rstrip(_MARKS)


def _after_courtesy(lowered: str) -> int:
    at = 0
    for _ in range(_MOST_SEGMENTS):
        found = _SEGMENT.match(lowered, at)
        if found and _says_nothing(found[1], ends=found[2]):
            at = found.end()
        elif opening := _OPENING.match(lowered, at):
            at = opening.end()
        else:
            break
    return at


def _before_courtesy(lowered: str) -> str:
    for _ in range(_MOST_SEGMENTS):
        # Searched in the last characters only, since a search in a long text would
        # start at every position.
        last = max(0, len(lowered) - _TAIL)
        found = _LAST.search(lowered, last)
        if found and _says_nothing(found[1], ends=found[2]):
            lowered = lowered[: found.start() + 1]
        elif thanks := _THANKS.search(lowered, max(1, last)):
            lowered = lowered[: thanks.start()]
        elif (label := _LAST_LABEL.search(lowered, last)) and label[1] in _LABELS:
            lowered = lowered[: label.start()]
        else:
            break
    return lowered


def _says_nothing(segment: str, *, ends: str) -> bool:
    words = _WORD.findall(segment)
    if words and all(word in _LABELS for word in words):
        # A label without a colon is an ordinary word: "Answer the question".
        return ":" in ends or ">" in ends
    marked = [word in _COURTESY or word in _LABELS for word in words]
    return any(marked) and all(
        mark or word in _SMALL for mark, word in zip(marked, words, strict=True)
    )
