"""What has a form of its own in German, French, Spanish, Italian, Dutch, Portuguese.

Dates, ages, addresses, telephones, numbers behind their labels, passwords, numbers
spelled out; and everyday sentences with numbers in them that hold none of these.
"""

from curtilage.client.detection.detectors.scanner import scan
from support.equipment import own
from support.examples import examples

FOUND: dict[str, str] = {
    "identifier.quasi.date": """
        Aufnahme am 3. März 2024
        Aufnahme am 3. Jan. 2024
        OP am 14. Sept. 2023
        OP am 14. Dez. 2023
        OP am 14. Okt. 2023
        am 3. Mrz 2024
        am 3. Feb. 2024
        am 3. Jänner 2024
        am 03. Mai '61
        admis le 1er avril 2024
        admis le 2 févr. 2024
        admis le 12 janv. 2024
        admis le 12 juil. 2024
        admis le 12 déc. 2024
        admis le 12 août 2024
        ingresó el 3 de mayo de 1980
        ingresó el 3 de mayo del 2020
        ingresó el 3 de ene. de 2020
        ingresó el 12-dic-2020
        ingresó el 12/ago/2020
        ingresó el 1º de mayo de 2020
        ingresó el primero de mayo de 2020
        ricoverata il 12 dicembre '61
        ricoverata il 1° maggio 2020
        ricoverata il 1º maggio 2020
        ricoverata l'8 gen. 2020
        ricoverata il 3 mag 2020
        ricoverata il 3 giu. 2020
        ricoverata il 3 lug. 2020
        ricoverata il 3 ott. 2020
        ricoverata il 3 set. 2020
        opgenomen op 5 mei 1970
        opgenomen op 5 mrt 1970
        opgenomen op 5 okt. 2020
        opgenomen op 5 febr. 2020
        internado em 7 de março de 1988
        internado em 7 de fev. de 1988
        internado em 7 out 1988
        internado a 7 dez. 2020
        internado em 1º de janeiro de 2020
        internado em 07/set/2020
        am dritten März 2020
        le premier mai 2020
    """,
    "identifier.quasi.dob": """
        Patient geb. 3. März 1975
        geb. am 03.03.1975
        geboren am 3. Mrz 1975
        Geburtsdatum: 03.03.75
        Geb.-Dat.: 03.03.1975
        Geb.datum 03.03.1975
        GebDat 3.3.1975
        Jg. 1975
        née le 1er avril 1961
        né le 12/04/1975
        Né(e) le : 12/04/1975
        date de naissance : 12 janv. 1975
        DDN : 12/04/1975
        ddn 12-04-1975
        nacido el 3 de mayo de 1980
        nacida el día 3 de mayo de 1980
        Fecha de nacimiento: 03/05/1980
        F. nac.: 03/05/1980
        FN: 03/05/1980
        F. de nacimiento 03/05/1980
        nací el 3 de mayo de 1980
        nació el 3 de mayo de 1980
        nato il 12 dicembre '61
        nata a Torino il 12 dicembre 1961
        nato a Roma il 12/12/1961
        sono nato il 12 dicembre 1961
        data di nascita: 12.12.1961
        geboren op 5 mei 1970
        geb. 5 mei 1970
        geboortedatum 5-5-1970
        geb.datum: 05-05-1970
        nascido em 7 de março de 1988
        nascida a 7 de março de 1988
        data de nascimento: 07/03/1988
        Data Nasc.: 07/03/1988
        DN: 07/03/1988
        nasci em 7 de março de 1988
        geboren in Köln am 3. März 1975
        née à Lyon le 3 mars 1975
        nacida en Sevilla el 3 de marzo de 1975
        nascido no Porto em 3 de março de 1975
        geboren te Utrecht op 3 maart 1975
        geb. 3. April 1975
        Geburtstag ist der 14. August 1975
        geboren bin ich am 3.8.41
        Geburtsdatum 030841
        née le 03 08 1941
        er hat am 3.8.41 Geburtstag
        date_naissance=1941-08-03
        ein Sohn kam am 3.8.2019 auf die Welt
        née en mars 1975
        né un 3 avril
        date naiss. 3.8.41
        naissance : 3/8/1941
        une fille est venue au monde le 3 mars 2019
        n. 03/08/1941 à Nantes
    """,
    "identifier.quasi.age90": """
        92 Jahre alt
        eine 92-jährige Patientin
        ein 92jähriger Mann
        der 92 Jährige
        sie ist 92
        mit 92 Jahren
        Alter: 92
        patiente de 92 ans
        âgée de 92 ans
        elle a 92 ans
        paciente de 92 años
        tiene 92 años
        mujer de 92 a.
        edad: 92
        paziente di 92 anni
        di anni 92
        92enne
        una donna novantaduenne
        patiënt van 92 jaar
        een 92-jarige vrouw
        de 92-jarige
        doente de 92 anos
        com 92 anos de idade
        zweiundneunzigjährige Patientin
        zweiundneunzig Jahre alt
        quatre-vingt-douze ans
        noventa y dos años
        novantadue anni
        tweeënnegentig jaar
        noventa e dois anos
        nonagénaire
        101-jähriger
    """,
    "identifier.quasi.age": """
        67 Jahre
        67 ans
        ein 67-jähriger Mann
        een 67-jarige man
        67 anni
        de 67 años
        de 67 anos
        un uomo 67enne
    """,
    "identifier.direct.address": """
        Lindenstraße 7
        Lindenstr. 7a
        Lindenstr 7
        Ringweg 12
        Goetheplatz 3
        Am Alten Markt 3
        An der Alster 12
        Mariahilfer Straße 12/3/4
        Kärntner Ring 5
        Gartenstrasse 14, 8002 Zürich
        Hauptstraße 5, 1010 Wien
        Rosenweg 4
        Mühlgasse 9
        Bergkamp 9, 22303 Hamburg
        Bahnhofallee 3
        Heinrich-Heine-Straße 23b
        Kurfürstendamm 21
        Elbchaussee 12
        Schlossberg 4, 88212 Ravensburg
        Uferpromenade 8
        12 rue de la Paix
        12, rue des Lilas
        3 bis, avenue Foch
        14 ter rue Victor Hugo
        25 bd Voltaire
        25 bld Voltaire
        7 place de la République
        7 place Bellecour
        4 allée des Tilleuls
        18 cours Lafayette
        18 sq. du Temple
        18 square du Temple
        2 passage du Moulin
        2 lotissement Les Pins
        120 route de Vannes
        9 faubourg Saint-Honoré
        rue de la Loi 16 bte 4
        31 r. des Carmes
        Rue Royale 145, 1000 Bruxelles
        Avenue Louise 54 boîte 3
        chaussée de Charleroi 110
        4567, rue Saint-Denis, Montréal
        1234 boul. René-Lévesque Ouest
        1234 chemin de la Côte-des-Neiges
        10 quai de Jemmapes
        via Roma 12
        via Giuseppe Verdi, 12
        v.le Monza 140
        viale Monza n. 140
        C.so Francia 30
        corso Vittorio Emanuele II, 30
        p.zza Garibaldi 4
        piazza Garibaldi 4/b
        largo Augusto 3
        strada provinciale 12
        vicolo Stretto 3
        via dei Mille 40 int. 5
        via XX Settembre, 24
        contrada San Marco 7
        località Pianello 7
        c/ Mayor 5
        C/ Alcalá, 45, 2º B
        calle de Alcalá n.º 45
        Avda. de la Constitución 12
        avenida Diagonal 450
        Pº de la Castellana, 100
        paseo de Gracia 12
        Pza. Mayor 3
        plaza Mayor, 3
        ronda de Toledo 12
        camino Viejo 12
        carretera de Burgos 12
        travesía del Pez 3
        Av. Insurgentes Sur 1602
        Calle 5 de Mayo #23, Col. Centro
        Av. Corrientes 1234, piso 5, depto. B
        Bv. Oroño 1234
        urbanización Los Olivos 14
        Keizersgracht 174
        Dorpsstraat 12-B
        Lange Voorhout 9
        Van der Helstplein 4
        Jan van Galenstraat 323-3hs
        Kerkstraat 10 bus 3
        Molenweg 5
        Stationsdreef 40
        Parkkade 3
        De Ruijterkade 3
        Rua Augusta n.º 24
        Av. da Liberdade 110
        Avenida Paulista, 1578
        Praça do Comércio 5
        Largo do Carmo 12
        Travessa das Flores, 3
        Estrada da Luz 90
        Alameda Santos 1165
        Quadra 5 Lote 12
        Beco do Sol 4
        Rua 25 de Março, 350
        Rua Sete de Setembro nº 43 apto 12
    """,
    "identifier.quasi.zip": """
        10115 Berlin
        1010 Wien
        CH-8002 Zürich
        A-1010 Wien
        8002 Zürich
        PLZ 10115
        22303 Hamburg
        60311 Frankfurt am Main
        75011 Paris
        69003 Lyon
        B-1000 Bruxelles
        1000 Bruxelles
        F-75011 Paris
        H2X 1Y4
        13001 Marseille
        20121 Milano
        00184 Roma
        CAP 20121
        I-20121 Milano
        80121 Napoli (NA)
        28013 Madrid
        C.P. 06700
        CP 28013
        C1043AAZ
        08008 Barcelona
        1012 AB Amsterdam
        1012AB
        3511 BT Utrecht
        postcode 1012 AB
        2000 Antwerpen
        01310-100
        CEP 01310-100
        1100-048 Lisboa
    """,
    "identifier.direct.phone": """
        Tel.: 0221/470-4711
        Handy 0170 1234567
        Rufnummer 0170 1234567
        Mobil: 0664 1234567
        Natel 079 123 45 67
        port. 06 12 34 56 78
        mon num perso 33 18 70
        Hausapparat 3318
        erreichbar unter 0170 1234567
        Tél. : 01 42 68 53 00
        tél 06 12 34 56 78
        portable : 06.12.34.56.78
        GSM 0475 12 34 56
        mon numéro est le 06 12 34 56 78
        joignable au 06 12 34 56 78
        móvil 612 345 678
        teléfono 91 123 45 67
        tfno. 91 123 45 67
        tlf. 612345678
        tfn: 612 34 56 78
        cel. 55 1234 5678
        llámame al 612 345 678
        cell. 347 1234567
        cellulare 347 1234567
        telefono: 02 1234567
        tel. 06-12345678
        recapito 347 1234567
        mobiel 06-12345678
        telefoonnummer 020-1234567
        bereikbaar op 06 12345678
        tlm 912 345 678
        telem. 912 345 678
        telemóvel: 912 345 678
        celular (11) 98765-4321
        contacto: 912 345 678
        fone (11) 3456-7890
        zap 11 98765-4321
        +49 (0)30 901820
        +33 6 12 34 56 78
        +55 11 98765-4321
    """,
    "health.mrn": """
        Fallnummer 4711234
        Fall-Nr. 4711234
        Fallnr.: 4711234
        Patientennummer: 889123
        Patienten-Nr. 889123
        Pat.-Nr. 889123
        Pat.-ID 889123
        Aufnahmenummer 889123
        Krankenaktennummer 889123
        PID 889123
        Befundnummer 23-88912
        Eingangsnummer H2388912
        numéro de dossier 889123
        dossier n° 889123
        n° de dossier : 889123
        n° dossier 889123
        IPP 8891234
        NIP 8891234
        IEP : 8891234
        numéro de patient 889123
        n° patient 889123
        no de dossier 889123
        NHC 889123
        NHC: 889123
        número de historia clínica 889123
        n.º de historia 889123
        nº de historia clínica: 889123
        H.C. 889123
        HC nº 889123
        historia clínica n° 889123
        expediente clínico 889123
        número de paciente 889123
        cartella clinica n. 889123
        cartella n. 889123
        n. cartella 889123
        numero di cartella clinica: 889123
        codice paziente 889123
        ID paziente 889123
        nosologico 2023/889123
        numero nosologico 889123
        patiëntnummer 889123
        patiëntnr. 889123
        patiënt-id 889123
        patientnummer: 889123
        dossiernummer 889123
        opnamenummer 889123
        zisnummer 889123
        processo n.º 889123
        número do processo 889123
        nº do processo: 889123
        processo clínico 889123
        prontuário 889123
        prontuário nº 889123
        número do prontuário 889123
        n.º de doente 889123
    """,
    "health.plan_id": """
        Versichertennummer A123456780
        Versicherten-Nr.: A123456780
        Krankenkassennr. A123456780
        Vers.-Nr. A123456780
        Police Nr. 7781234
        Schadennummer 2024-778123
        Schaden-Nr. 2024-778123
        Policennummer 7781234
        n° d'assuré 889123
        numéro d'assuré 889123
        numéro de police 889123
        n° de sinistre 889123
        numéro d'adhérent 889123
        NAM TREM12345678
        NASS 281234567840
        CIP ABCD123456789012
        CIPA 1234567890
        n.º de tarjeta sanitaria 1234567890
        número de póliza 889123
        póliza nº 889123
        número de afiliado 889123
        nº de siniestro 889123
        obra social n° 889123
        tessera sanitaria 80380001234567890123
        numero di polizza 889123
        polizza n. 889123
        sinistro n. 889123
        numero assicurato 889123
        polisnummer 889123
        verzekerdennummer 889123
        verzekeringsnummer 889123
        relatienummer 889123
        schadenummer 889123
        número de utente 889123456
        n.º de utente 889123456
        utente nº 889123456
        SNS 889123456
        CNS 889123456789012
        apólice 889123
        n.º da apólice 889123
        número de beneficiário 889123
        carteirinha 889123
    """,
    "legal.docket": """
        Aktenzeichen 12 C 345/23
        Az.: 3 O 123/22
        Az: 3 O 123/22
        Geschäftszeichen 44-123/22
        RG n° 22/01234
        n° RG 22/01234
        numéro de rôle 22/01234
        n° de procédure 22/01234
        expediente 123/2022
        autos 123/2022
        procedimiento ordinario 123/2022
        R.G. 1234/2022
        R.G.N.R. 1234/22
        procedimento penale n. 1234/22
        fascicolo n. 1234/22
        pratica n. 1234/22
        zaaknummer C/13/123456
        zaaknr. 123456
        rolnummer 22/1234
        parketnummer 13-123456-22
        processo 1234567-89.2022.8.26.0100
        processo n.º 123/22.0TBLSB
        autos n.º 123/22
    """,
    "financial.account": """
        Kundennummer 889123
        Kunden-Nr.: 889123
        Kd.-Nr. 889123
        Kontonummer 1234567
        Konto-Nr. 1234567
        Kto.-Nr. 1234567
        Vertragsnummer 889123
        Mitgliedsnummer 889123
        Matrikelnummer 889123
        numéro client 889123
        n° client : 889123
        numéro de compte 12345678
        n° de contrat 889123
        n° d'adhérent 889123
        matricule 889123
        número de cliente 889123
        nº cliente 889123
        n.º de cuenta 12345678
        número de contrato 889123
        número de socio 889123
        codice cliente 889123
        numero cliente 889123
        n. cliente 889123
        c/c 12345678
        numero di contratto 889123
        numero di conto 12345678
        klantnummer 889123
        rekeningnummer 12345678
        lidnummer 889123
        contractnummer 889123
        número de cliente 889123
        n.º de cliente 889123
        código do cliente 889123
        número da conta 12345-6
        n.º de sócio 889123
        número do contrato 889123
    """,
    "identifier.direct.passport": """
        mon passeport est le 15DK70812
        passeport : DK 318702
        {"passport_no": "C4FJ70812"}
        Reisepassnummer C01X00T47
        Passnr. C01X00T47
        passeport n° 12AB34567
        numéro de passeport 12AB34567
        número de pasaporte AAA123456
        numero di passaporto YA1234567
        paspoortnummer NX1234567
        passaporte n.º CA123456
    """,
    "identifier.direct.gov_id.other": """
        Perso: L4FJ70812
        CNI : L4FJ70812
        Dienstausweis L4FJ70812
        Ausweisnummer L01X00T47
        Personalausweisnr. L01X00T47
        CNI n° 880692310285
        carta d'identità n. CA12345AA
        bilhete de identidade 12345678
        BI 12345678
    """,
    "identifier.direct.licence": """
        permis de conduire 123456789012
        patente n. U1B234567X
        rijbewijsnummer 5123456789
        CNH 12345678901
        Führerscheinnummer B072RRE2I55
        Führerschein-Nr. B072RRE2I55
    """,
    "identifier.direct.vehicle": """
        immat DK708WR
        carte grise : DK-708-WR
        Kennz.: DA-PK 71
        <immat>DK708WR</immat>
        {"kennzeichen": "DA-PK 71"}
        FIN VF7NC5FWC31450118
        Fahrgestellnr. VF7NC5FWC31450118
        Kennzeichen B-MW 1234
        Autokennzeichen: M AB 123
        Nummernschild HH-XY 77
        Kfz-Kennzeichen K-AB 12
        immatriculée AB-123-CD
        immatriculé AB-123-CD
        plaque AB-123-CD
        matrícula 1234 BCD
        targa AB123CD
        targata AB 123 CD
        kenteken 12-AB-34
        nummerplaat 1-ABC-123
        placa ABC-1234
        placa ABC1D23
        placas ABC-12-34
        matrícula AA-12-BB
    """,
    "secret.password": """
        Mein Passwort ist Sommer2023!
        Passwort: hunter2
        das Kennwort lautet geheim99
        Zugangsdaten: mueller / Sommer2023!
        mot de passe : Soleil75
        mon mot de passe est Soleil75
        mdp : Soleil75
        mdp Soleil75
        code secret 4821
        contraseña: Verano23
        mi contraseña es Verano23
        la clave es Verano23
        clave: 4821
        password è Estate23
        la mia password è Estate23
        codice PIN 48213
        wachtwoord: Zomer23
        mijn wachtwoord is Zomer23
        ww: Zomer23
        pincode 4821
        senha: Verao23
        minha senha é Verao23
        palavra-passe: Verao23
        a palavra-passe é Verao23
        código de acesso 4821
        PIN lautet 4821
        Geheimzahl: 4821
        Türcode 4821
        digicode 4821B
        Der Türcode vom Serverraum ist 4471
        Der Code für die Alarmanlage ist 4471
        El código de la puerta del servidor es 4471
        Il codice del cancello è 4471
        Il codice della porta del server è 4471
        O código do portão é 4471
        Le code de la porte du serveur est 4471
        Le code de l'alarme est 4471
        De code van het alarm is 4471
        De deurcode van de serverruimte is 4471
        the combination of the safe is 44-71-09
        die PIN lautet neun drei eins sieben
        el pin es nueve tres uno siete
        le code pin est neuf trois un sept
        il pin è nove tre uno sette
        de pincode is negen drie een zeven
        o pin é nove três um sete
        mein WLAN-Passwort ist Sommer2023
    """,
    "uncertain.number_run": """
        Mandatsreferenz BW-3318-K
        Mitgliedsnummer im Verein ist 33187
        kundennr=33187
        n° locataire 33187
        n° de dossier préfecture 2024-K-3318
        numéro client 3318
        votre réf. : NB/33-18
        compte n 331870
        le no de dossier cest 3318k
        quatre un un un un un un un un un un un un un un un
        meine Nummer ist null eins sieben null eins zwei drei vier fünf sechs sieben
        nul zes een twee drie vier vijf zes zeven acht
        zéro six douze trente-quatre cinquante-six soixante-dix-huit
        zéro six, douze, trente-quatre, cinquante-six, soixante-dix-huit
        null eins siebzig zwölf vierunddreißig sechsundfünfzig sieben
        tre quattro sette uno due tre quattro cinque sei sette
        seis uno dos tres cuatro cinco seis siete ocho
        seis doce treinta y cuatro cincuenta y seis setenta y ocho
        nove um dois três quatro cinco seis sete oito
        nove doze trinta e quatro cinquenta e seis setenta e oito
        doppel null vier neun dreimal die sieben acht eins zwei
        zes twaalf vierendertig zesenvijftig achtenzeventig negen
        Kartennummer 4111, dann 1111, dann nochmal 1111 und am Ende 1111
        mon téléphone c'est le 06 puis 12 puis 34 puis 56 puis 78
        telefoon: 06 en dan 12 en dan 34 en dan 56 en dan 78
    """,
    "financial.pan": """
        mi tarjeta: primero 4111, luego 1111, después 1111 y 1111
    """,
}
EXAMPLES = [
    (name, text.strip())
    for name, texts in FOUND.items()
    for text in texts.splitlines()
    if text.strip()
]
HARMLESS = [
    each.strip()
    for each in """
    Die Französische Revolution begann am 14. Juli 1789.
    Der Zweite Weltkrieg endete am 8. Mai 1945 in Europa.
    La prise de la Bastille a eu lieu le 14 juillet 1789.
    La Segunda República se proclamó el 14 de abril de 1931.
    La Repubblica Italiana nacque il 2 giugno 1946.
    De Slag bij Waterloo vond plaats op 18 juni 1815.
    A Revolução dos Cravos foi em 25 de abril de 1974.
    Goethe wurde am 28. August 1749 geboren.
    Mozart est né le 27 janvier 1756 à Salzbourg.
    Öffnungszeiten: Mo-Fr 8:00-18:30 Uhr, Sa 9-13 Uhr
    Ouvert du lundi au vendredi de 9h00 à 18h30.
    Horario: lunes a viernes de 9:00 a 20:00 h.
    Orari: lun-ven 9.00-13.00 e 15.30-19.30
    Openingstijden: maandag t/m vrijdag 9.00-17.30 uur
    Horário: segunda a sexta, das 9h às 18h30
    Der Preis beträgt 1.299,00 € inkl. MwSt.
    Die Artikelnummer 4471-22 passt nicht, Ersatzteilnummer 3318 schon.
    Zug 3318 fährt heute von Gleis 4, Zugnummer und Wagen siehe Aushang.
    Wo steht die Kundennummer, und wie viele Stellen hat sie?
    Buche es auf Konto 4400, nicht auf Konto 8400.
    Das Auto hat 150 PS und kostet 31.870 Euro.
    La pièce n° 3318 est épuisée, la référence produit aussi.
    Le train n° 3318 part voie 4, le vol AF 318 a du retard.
    La loi n° 2018-493 modifie celle de 1978.
    Où se trouve le numéro client sur une facture ?
    Le compte 6061 et le compte 411 du plan comptable
    Le prix est de 1 299,00 € TTC.
    El precio es de 1.299,00 € con IVA incluido.
    Il prezzo è di 1.299,00 euro IVA inclusa.
    De prijs is € 1.299,00 inclusief btw.
    O preço é de R$ 1.299,00 à vista.
    Die Kosten liegen bei 2.500.000 Euro.
    Le budget est de 12 500 000 euros.
    El presupuesto es de 12.500.000 euros.
    Il fatturato è di 12.500.000 euro.
    De omzet was 12.500.000 euro.
    A receita foi de 12.500.000 reais.
    250 g Mehl, 3 Eier, 150 ml Milch, bei 180 °C 35 Minuten backen
    250 g de farine, 3 œufs, 150 ml de lait, 35 minutes à 180 °C
    250 g de harina, 3 huevos, 150 ml de leche, 35 minutos a 180 grados
    250 g di farina, 3 uova, 150 ml di latte, 35 minuti a 180 gradi
    250 g bloem, 3 eieren, 150 ml melk, 35 minuten op 180 graden
    250 g de farinha, 3 ovos, 150 ml de leite, 35 minutos a 180 graus
    Version 3.12.4 behebt den Fehler aus 3.12.3
    la version 3.12.4 corrige le bug de la 3.12.3
    la versión 3.12.4 corrige el error de la 3.12.3
    Bayern gewann 3:1, das Rückspiel endete 2:2
    Le PSG a gagné 3-1, le match retour s'est terminé 2-2
    El Barça ganó 3-1 y el partido de vuelta acabó 2-2
    La Juve ha vinto 3-1 e il ritorno è finito 2-2
    Ajax won met 3-1 en de return eindigde in 2-2
    O Benfica ganhou 3-1 e a segunda mão acabou 2-2
    Wie koche ich Reis für 4 Personen?
    Schreibe mir 5 Ideen für einen Geburtstag.
    Was passierte 1848 in Berlin?
    Wie ist das Wetter am 3. März in München?
    Quel temps fera-t-il le 12 avril à Lyon ?
    ¿Qué tiempo hará el 3 de mayo en Sevilla?
    Che tempo farà il 12 dicembre a Torino?
    Wat voor weer wordt het op 5 mei in Utrecht?
    Como estará o tempo no dia 7 de março no Porto?
    Stell einen Wecker auf 7:30 Uhr
    Mets une alarme à 7 h 30
    Pon una alarma a las 7:30
    Metti una sveglia alle 7:30
    Zet een wekker om 7:30 uur
    Coloca um alarme para as 7h30
    Das Gesetz trat am 1. Januar 2020 in Kraft.
    La loi est entrée en vigueur le 1er janvier 2020.
    La ley entró en vigor el 1 de enero de 2020.
    § 823 BGB Absatz 1 und Art. 6 DSGVO
    article 1240 du code civil
    artículo 1902 del Código Civil
    articolo 2043 del codice civile
    artikel 6:162 BW
    artigo 483.º do Código Civil
    Die Straße hat 3 Spuren.
    Auf der Straße 3 Unfälle in 2 Tagen
    Der Weg 5 ist gesperrt
    Im Jahr 2020 waren es 15 Fälle
    Am Montag 12 Uhr treffen wir uns
    Im März 2020 begann der Lockdown
    Zum Beispiel 12 Äpfel
    Im Durchschnitt 12 Stunden
    Der Zug fährt auf Gleis 12
    In der Regel 3 Tage
    Zur Not 2 Tabletten
    Am Ende 3 Punkte
    la route 66 est célèbre
    en cours de 18 mois, 18 cours de yoga
    18 cours de yoga par semaine
    3 places de parking
    2 passages piétons
    7 place pour la nuit
    120 routes de campagne
    il y a 12 rues dans ce quartier
    via email entro 3 giorni
    via mail 2 volte
    via terra 12 ore
    per via orale 3 volte al giorno
    via intramuscolo 2 ml
    la strada 12 km a nord
    nel corso 2023 abbiamo visto
    corso di 12 lezioni
    la piazza 3 volte più grande
    a largo 3 miglia
    la calle tiene 12 casas
    el camino 12 km
    de camino a casa 3 veces
    la plaza de 12 metros
    c/ IVA 21 %
    rua com 12 casas
    largo de 3 metros
    na estrada 12 km
    alameda com 12 árvores
    weg 5 minuten lopen
    onderweg 12 km
    de straat 3 keer
    op het plein 12 mensen
    De helft is 12 procent
    Ein Platz 3 in der Tabelle
    Sie belegte Platz 3
    Er kam auf Platz 12
    Kapitel 3, Seite 1010 Zeilen
    Es kamen 10000 Menschen
    Wir haben 10000 Besucher
    25000 Euro Kredit
    2024 Berlin Marathon
    1945 Berlin war zerstört
    Im Jahr 1990 Deutschland wiedervereinigt
    Paris 2024, Londres 2012
    Wien 1900
    En 2012 Madrid tenía 3 millones
    Nel 2012 Roma aveva 3 milioni
    10000 Personnes
    75000 Francs
    12000 Besucher
    Platz für 20000 Zuschauer
    20000 Meilen unter dem Meer
    ISO 27001 Zertifizierung
    DIN 18040 Norm
    RFC 2119 MUST
    la clave es la constancia
    La clave del éxito es trabajar
    la clave: trabajar mucho
    das Passwort ist vergessen
    Wie kann ich mein Passwort zurücksetzen?
    Mein Passwort ist abgelaufen
    das Passwort ist zu kurz
    le mot de passe est trop court
    mon mot de passe est expiré
    mot de passe oublié
    la contraseña es incorrecta
    la contraseña es demasiado corta
    he olvidado mi contraseña
    la password è sbagliata
    la password è scaduta
    het wachtwoord is verlopen
    mijn wachtwoord is te kort
    a senha é muito curta
    a senha está errada
    esqueci minha senha
    La parola è d'argento
    la parola: amore
    parola è un sostantivo
    Die Wohnung hat 3 Zimmer, 75 m²
    der Patient nimmt 3 Tabletten
    Die Garantie gilt 2 Jahre
    garantie de 2 ans
    garantía de 2 años
    nach 90 Jahren Frieden
    Die Firma besteht seit 100 Jahren
    La société existe depuis 100 ans
    La empresa tiene 100 años de historia
    L'azienda ha 100 anni di storia
    Het bedrijf bestaat 100 jaar
    há 100 anos
    la guerra dei 100 anni
    Hace 95 años
    il y a 95 ans
    vor 95 Jahren
    95 Jahre Frieden
    Anleihe mit 100-jähriger Laufzeit
    in den letzten 100 Jahren
    dans les 100 dernières années
    Das Spiel dauerte 95 Minuten
    BGB-Urteil im Fall 12
    Fall 3: ein Mann
    caso 3: hombre
    Patient 3 hatte Fieber
    Episode 12 Staffel 3
    épisode 12 saison 3
    episodio 12 temporada 3
    episodio 2024
    der Konto-Stand
    Rechnung 2023
    pratica sportiva 2023
    processo 2023
    o processo de 2022
    el expediente X
    el procedimiento 3
    fascicolo 3
    BI 2023 dashboards
    RG 2023
    SNS 2023
    HC 2023
    DN 1200
    FN 2023
    NIP 2023
    plaque 12 mm
    placa 12 mm
    placa de 12 mm
    placa base ATX 550
    placa gráfica RTX 3060
    placa RTX 3060
    la matrícula cuesta 1200 euros
    matrícula 2023
    targa d'oro 2023
    kenteken aanvragen 2023
    contacto: lunes a viernes 9-18
    Kontakt: Mo-Fr 9-18
    eins zwei drei vier fünf
    un deux trois quatre cinq six
    uno dos tres cuatro cinco seis
    compte jusqu'à dix : un, deux, trois, quatre, cinq, six, sept, huit, neuf, dix
    uno, dos, tres, cuatro, cinco, seis, siete, ocho, nueve, diez
    uno, due, tre, quattro, cinque, sei, sette, otto, nove, dieci
    een, twee, drie, vier, vijf, zes, zeven, acht, negen, tien
    um, dois, três, quatro, cinco, seis, sete, oito, nove, dez
    dix, vingt, trente, quarante, cinquante, soixante, soixante-dix
    2, 3, 5, 7, 11, 13 und 17 sind Primzahlen
    Bestellnummer des Ersatzteils
    Artikelnummer 12345
    Kaffee für 3,50 €, Tee für 2,80 €
    La tension était de 120/80
    Die Temperatur war 38,5 °C
    1 Tasse (250 ml) = 16 Esslöffel
    Ich wohne im 3. Stock
    J'habite au 3e étage
    Kaltmiete 850 €, Nebenkosten 120 €
    tarif 12 rue
    Via della Seta nel 1200
    la Via Lattea ha 200 miliardi di stelle
    Via Appia antica
    la rue de Rivoli à Paris
    Quelle est l'histoire de la place Vendôme ?
    Was ist der Kurfürstendamm?
    Die Champs-Élysées in Paris
    Plaza Mayor de Madrid
    Avenida Paulista em São Paulo
    Keizersgracht in Amsterdam
    1. FC Köln gegen 1. FC Union
    Formel 1 in Monza 2023
    Die 7 Weltwunder
    Der 11. September 2001
    el 11 de septiembre de 2001
    l'11 settembre 2001
    der 3. Oktober ist Feiertag
    le 14 juillet est férié
    el 12 de octubre es festivo
    il 25 aprile è festa
    5 mei is bevrijdingsdag
    7 de setembro é feriado
    nacht, 3 maal
    nel 1861 è nata l'Italia
    è nato nel 2010 il progetto
    die Firma wurde 1999 gegründet
    ein Jahrgang 2015 Bordeaux
    Rotwein Jahrgang 2015
""".strip().splitlines()
]


def classes(text: str) -> set[str]:
    (spans,) = scan([text], own())
    return {span.data_class for span in spans}


@examples(("data_class", "text"), EXAMPLES)
def test_a_form_is_found(data_class: str, text: str) -> None:
    assert any(each.startswith(data_class) for each in classes(text))


@examples("text", HARMLESS)
def test_an_impersonal_number_is_left_alone(text: str) -> None:
    kept = (
        *("identifier.direct.", "identifier.quasi.dob", "identifier.quasi.age"),
        *(
            "identifier.quasi.zip",
            "financial.",
            "secret.",
            "legal.docket",
            "health.mrn",
        ),
        *("health.plan_id", "uncertain.number_run"),
    )
    found = classes(text) - {"identifier.direct.person"}
    assert not [each for each in found if each.startswith(kept)]
