"""Patterns of reference numbers under which a person is registered anywhere, as data.

Customer, contract, file, tenant, meter, ticket: no list has all labels. German and
Dutch combine "number" and the numbered thing into one word, French says "number of".
Such a number refers to a person, unless the thing is one that is numbered for everyone.
The class is ``uncertain.number_run``, since nothing is known but that it numbers
something. This module runs nothing; ``matcher`` does. Every repetition is bounded or
cannot overlap its neighbour, so that the time is linear in the length.
"""

from curtilage.client.detection.detectors.patterns.rule import (
    ANY_DIGIT,
    PatternRule,
    listed,
)

_CLASS = "uncertain.number_run"

# At least four characters from the first digit on, three of them digits; letters before
# it are joined to it, or are capitals. Not a year, an amount or a measure.
_VALUE = (
    r"(?!(?:19|20)\d\d(?![\w\-/.]))(?=(?:[^\d\s]{0,8}[ ]?\d){3})"
    r"(?:(?-i:[A-Z]{1,3})[ ]|[A-Z]{1,8}[./\-]?)?"
    r"\d(?:[./\-]{0,2}[A-Z0-9]|[ ]\d|[ ](?-i:[A-Z])(?=[ ]?\d)){3,24}"
    r"(?!\w|[.,]\d|\s?(?:[€$£%]|(?:euros?|eur|chf|franken|francs?|stück|mal|uhr|m²|km|"
    r"kg|gb|mb|personen|personnes|ans|heures|jours|mois|pages|unités)(?!\w)))"
)
# Between them: a quote or a bracket of a record, a colon, "ist", "est le", "#".
_IS = (
    r"[\"'*_\])>]{0,3}\s?(?:[:=]|(?:ist|lautet|war|wäre|heißt|sind|est|is|était)"
    r"(?: le| la| die| das)?(?!\w)|n[°º]|nr\.?)?\s{0,2}[:=]?\s{0,2}[\"'(#*_]{0,2}"
)
# "bei den Stadtwerken", "auprès de la MGEN", "de mon contrat": the number's issuer.
_AT = (
    r"(?:[ ](?:bei|beim|der|des|für|vom|von|am|im|auprès|chez|pour|à|de|du|des|mon|ma|"
    r"mes)(?:[ ][^\W\d][\w.'\u2019\-]{0,20}){1,4}[ ](?:ist|lautet|est(?: le)?|:)|"
    r"[ ]?\([^()\d\n]{1,24}\))?"
)

# Things that any catalogue, timetable, statute book or program numbers. A stem covers
# every compound that ends with it: Ersatzteil, Werkstoff.
_NOBODYS_COMPOUNDS = listed("""
artikel artnr teil teile modell typen muster produkt material werkstoff farbton serien
versions version revision release build ausgaben ausgabe auflage seiten blatt kapitel
absatz abschnitt paragraf paragraphen zeilen spalten positions laufende zug linien flug
gleis wagen strecken autobahn haus zimmer raum saal sitzplatz tisch haltestellen rücken
trikot start spiel runden losungs gewinn ordnungs norm fehler kanal frequenz programm
issue commit chargen charge katalog drucksachen drucksache patent gefahr gefahrgut stück
inventar opus werkverzeichnis aufgaben fragen übungs beispiel test notruf service
hotline kurzwahl behörden lager abbildungs tabellen anlagen pagina bladzijde trein
vlucht lijn kamer spoor serie versie hoofdstuk onderdeel
""")
# Short ones, which are also the ends of other words: Kunden-, Patientennummer.
_NOBODYS_WORDS = listed("""
art teil typ prod sach mat farb ser rev heft band seite kap pos lfd bus tür stock platz
wagen atom cas eg un eu iso din en euro port bug pull los batch kat drs pzn ean gtin
isbn issn wkn isin valoren op werk kv frage info block feld bild abb tab lijn huis zaal
regel rug haus zug flug
""")
_COMPOUND = (
    r"(?<![\w@/.\-])(?!(?:[\w\-]{0,24}?(?:"
    rf"{'|'.join(_NOBODYS_COMPOUNDS)})|(?:{'|'.join(_NOBODYS_WORDS)}))s?[.\-]{{0,2}}"
    r"n(?:umme)?rn?(?!\w))"
    # An account in a ledger has four digits: see ``account-by-name``.
    r"(?![\w\-]{0,24}konto-?n(?:umme)?r)"
    r"[a-zäöüß][a-zäöüß./\-]{0,30}?n(?:ummern?|r(?!\w)\.?)"
)

# The same in French, after "n°" or "numéro de".
_NOBODYS_NOUNS = listed("""
article articles produit produits pièce pièces piece modèle modele type version révision
revision page pages chapitre ligne lignes colonne paragraphe alinéa question exercice
problème train trains tgv ter vol vols bus tram métro quai voie route sortie porte
salle chambre place étage maison rue loi lois décret decret arrêté arrete arrêt arret
ordonnance directive règlement reglement circulaire délibération avis norme brevet cas
onu ce isbn issn ean isin série serie lot édition edition tome volume épisode saison
numéro magazine revue journal opus maillot dossard erreur port canal programme issue
ticket commit bug atomique départ vert court surtaxé spécial urgence urgences
département insee cerfa formulaire tableau figure annexe pourvoi requête projet
proposition amendement résolution jour ordre ordres suite
rg página pagina pagine páginas articolo artículo artigo treno tren vuelo volo voo
legge ley lei decreto
""")
_OF = r"(?:d[eu]s? (?:la |l['\u2019])?|d['\u2019]|della? |del? |dell['\u2019])?"
_NUMBER_OF = (
    r"(?<!\w)(?:n ?[°º]|num[eé]ros?(?!\w)|num(?!\w)\.?|"
    r"r[eé]f(?:[eé]rences?|\.|(?!\w))|identifiant(?!\w)|"
    r"(?:num(?:ero)?|no|ref|id)(?=_[a-z])|"
    r"no\.?(?= (?:de |du |d['\u2019]|client|dossier|abonn|adh)))[ _]?"
    rf"(?!{_OF}(?:{'|'.join(_NOBODYS_NOUNS)})(?!\w)){_OF}"
    r"[^\W\d_][\w'\u2019\-]{1,20}\.?"
    r"(?:[ /](?!n[°º])[^\W\d_][\w'\u2019\-]{0,20}\.?){0,3}?"
)
# Things that are numbered for a person, with or without "number" after them.
_SOMEBODYS = (
    r"client(?:e|ele)?|dossier|compte|cpte|contrat|police|sinistre|adh[eé]rente?|"
    r"abonn[eé]e?|abonnement|assur[eé]e?|allocataire|b[eé]n[eé]ficiaire|patiente?|"
    r"soci[eé]taire|membre|locataire|propri[eé]taire|salari[eé]e?|agent|"
    r"[eé]tudiante?|[eé]l[eè]ve|candidate?|inscription|affiliation|mandat|"
    r"livret(?: de famille| [a-z](?= )| d['\u2019][eé]pargne)?|"
    r"permis(?: [a-z]{1,3}| de \w{3,12})?|titre(?: de s[eé]jour)?|r[eé]c[eé]piss[eé]|"
    r"compteur|"
    r"r[eé]servation|r[eé]sa|commande|facture|badge|licence|demande|"
    r"carte(?: de fid[eé]lit[eé]| grise| "
    r"d['\u2019]\w{3,12})?|kunden?|kundin|mieter(?:in)?|vertrag|mitglied|patient"
    r"(?:in)?|akte|vorgang|ausweis|versicherte[rn]?"
)
_BARE = (
    r"matricule(?: \w{3,12})?|allocataire|adh[eé]rente?(?: \w{3,10})?|soci[eé]taire|"
    r"(?<!de )dossier(?= \d\d-\d)|no_dossier|num_dossier|num_client|"
    r"point de livraison|pdl|prm|carte de fid[eé]lit[eé]|carte d['\u2019]abonn[eé]e?|"
    r"titre de s[eé]jour|(?:client|patient|dossier|adh[eé]rent|contrat)_"
    r"(?:no|num(?:ero)?|id)|"
    r"compte[ -](?:titres|ch[eè]ques?|courant|joint|[eé]pargne)|"
    r"votre r[eé]f(?:[eé]rence|\.)?|v/r[eé]f\.?|nos? r[eé]f\.?|r[eé]servation pnr|pnr|"
    r"aufenthaltstitel|\w{0,16}ausweis|"
    r"(?:id|identitäts|kunden|mitglieds|bonus|versicherten|gesundheits)-?"
    r"karte|(?:kunden|patienten|schüler|mitglieds|nutzer|"
    r"benutzer|versicherten|mitarbeiter|klienten|vertrags|teilnehmer|mandanten|vorgangs|antrags|"
    r"auftrags)-?id|"
    r"mandatsref(?:erenz|\.)?|"
    r"buchungscode|reservierungscode|zählpunkt(?:bezeichnung)?|etin|"
    r"personenkenn(?:zahl|ziffer)|kennziffer|(?:unser|ihr|mein) zeichen|"
    r"geschäftszeichen|"
    r"ordnungsbegriff|kundenkennung|nutzerkennung|benutzerkennung|"
    r"versicherungspolice|polizze|perso(?= ?:)"
)
_NUMBERED = (
    rf"(?<!\w)(?:{_SOMEBODYS})(?: [^\W\d_][\w'\u2019\-]{{1,14}}){{0,2}}?[ ]?"
    rf"(?:n ?[°º]|no\.?|n\.|nr\.?|num[eé]ro|#|n(?= \d))\s?:?\s?({_VALUE})"
)
_NAMED = (
    rf"(?<!\w)(?:{_BARE}){_AT}{_IS}({_VALUE}|(?-i:(?=[A-Z0-9]{{0,5}}\d)"
    r"[A-Z0-9]{5,8})(?!\w))"
)
REFERENCES = (
    *(
        PatternRule(
            id=name,
            data_class=_CLASS,
            regex=regex,
            score=60,
            group=1,
            gate=ANY_DIGIT,
            spoken=True,
        )
        for name, regex in (
            ("reference-compound", rf"{_COMPOUND}{_AT}{_IS}({_VALUE})"),
            ("reference-number-of", rf"{_NUMBER_OF}{_AT}{_IS}({_VALUE})"),
            ("reference-numbered", _NUMBERED),
            ("reference-named", _NAMED),
        )
    ),
    # At least five digits: with four, it is an account in a ledger.
    PatternRule(
        id="account-by-name",
        data_class=_CLASS,
        regex=r"(?<!\w)[a-zäöü]{0,24}(?:konto|kto\.?)(?:-?n(?:umme)?r\.?)?"
        rf"{_AT}{_IS}((?=\d(?:[ ./\-]?\d){{4}}){_VALUE})",
        score=60,
        group=1,
        digits=5,
        words=("konto", "kto"),
        spoken=True,
    ),
)
