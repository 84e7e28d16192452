"""Every rule of ours: at least three texts it finds, and many it leaves alone.

Keys are put together here, so that no line of this file looks like one.
"""

import pytest

from curtilage.client.detection.detectors.patterns.catalog import PATTERNS
from curtilage.client.detection.detectors.patterns.government_ids import IDENTITY
from curtilage.client.detection.detectors.patterns.matcher import PatternSet
from curtilage.client.detection.detectors.patterns.rule import PatternRule
from curtilage.client.detection.detectors.patterns.secrets import SECRETS
from curtilage.client.detection.detectors.readings import Reading
from curtilage.policy.decision.findings import Normalization
from support.equipment import every_pattern

RULES = {rule.id: rule for rule in (*PATTERNS, *SECRETS) if rule not in IDENTITY}

FOUND: dict[str, tuple[str, ...]] = {
    # --- contact ------------------------------------------------------------
    "email": ("a@b.com", "alice@hospital.local", "root@localhost",
                "x.y+z@corp.internal"),
    "email-bracketed-host": ("a@[192.0.2.1]", "to bob@[10.0.0.1]", "x@[2001:db8::1]"),
    "email-spoken": ("jane (at) example", "jane [at] corp-mail", "bob.b <at> firm"),
    "email-told": ("anna punkt koch at posteo punkt de", "o.roux (arobase) mail.fr",
                   "nora.k @ posteo.net", "courriel : noemie at exemple.qc.ca",
                   "p punkt graf klammeraffe web punkt de"),
    "phone-extension": ("Durchwahl -318", "Nebenstelle: 2207", "poste 3318",
                        "DW 4410", "ligne directe : 5531"),
    "phone-labelled": ("call me at 555-0100", "Handynummer: 0170 123456",
                       "mi móvil es 612 345 678", "tel. 030/901820"),
    "fax": ("fax: 212 555 0100", "Telefax 030 901820", "facsimile no. 2125550100"),
    "phone-international": ("+49 30 901820", "0044 20 7946 0958",
                "ring +1-212-555-0100"),
    "phone-grouped": ("(212) 555-0100", "212-555-0100", "212.555.0100"),
    "username": ("my username is jd_1984", "Benutzername: hmuster", "login=alice7"),
    "handle": ("ask @some_body", "follow @jane_doe now", "by @user42"),
    "profile-link": ("linkedin.com/in/some-body", "x.com/jane", "github.com/jdoe"),
    "link": ("https://example.com/a", "www.example.org", "see http://a.example"),
    "cookie": ("Cookie: sid=abc123def", "_ga=GA1.2.1033501218.1368477899",
               "JSESSIONID=1A530637289A03B07199A44E8D531427"),
    "cookie-id": ("cookie id 3f9a-22b1-9c",
                "IDFA: 6D92078A-8246-4BA4-AE5B-76104861E7DC",
                  "visitor id: v-9912834"),
    "ipv4": ("host 10.1.2.3 is down", "192.0.2.1", "from 203.0.113.7."),
    "ipv6": ("fe80::1ff:fe23:4567:890a", "2001:db8::1", "ping ::ffff:0:1 now"),
    "mac": ("aa:bb:cc:dd:ee:ff", "00-1B-63-84-45-E6", "001b.6384.45e6"),
    "imei-checked": ("IMEI 490154203237518", "imei: 49-015420-323751-8",
                     "imei is 356938035643809"),
    "imei": ("serial number SN-48291", "Seriennummer: X9912Z", "UDID 00008020-001"),
    "udi": ("(01)00844588003288", "UDI (01) 10884521062856", "(01)12345678901231(17)"),
    "plate": ("license plate 7ABC123", "Kennzeichen: B-MW 1234", "targa AB 123 CD"),
    "plate-france": ("DK-708-WR", "devant, BX-902-TL clignote", "GZ-115-MA"),
    "plate-switzerland": ("BE 318 772", "VS 90 551", "TG-204.617"),
    "plate-beside": ("ein Passat, DA-PK 71", "der Wagen WU SB 412", "la Twingo dk708wr",
                     "TG 204617, voiture grise", "NE 45021 stationnée ici"),
    "vin-europe": ("VF7NC5FWC31450118", "WAUZZZ8K9BA100345", "ZFA31200000740512"),
    "vin": ("1M8GDM9AXKP042788", "VIN 1FTFW1ET5DFC10002", "it is 5GZCZ43D13S812715"),
    "vin-labelled": ("FIN: VF7NC5FWC31450118", "VIN: 1M8GDM9AXKP042788",
                     "chassis number WBA12345678901234",
                     "Fahrgestellnummer WDB9066571S123456"),
    # --- addresses ----------------------------------------------------------
    # --- numbers under which somebody is kept -------------------------------
    "reference-compound": ("Leihausweisnummer 5517", "Mandantennr.: 70-318",
                           "Pers.-Nr. 3318", "Kundennummer: K 3318 7",
                           "Anschlussnummer bei der Bahn lautet 5 518",
                           "huurdersnummer 55179", '"spendernr": "33187"'),
    "reference-number-of": ("n° de cotisant 33187", "numéro d'usager : 33-187",
                            "réf. bail 3318/7", "identifiant famille 33187K",
                            "n° de badge 33187", "num_adherent: 33187"),
    "reference-numbered": ("locataire n° 33187", "contrat n°3318/7",
                           "Mieterin Nr. 33187",
                           "compte joint n° 331 87"),
    "reference-named": ("matricule 3318", "Aufenthaltstitel Z33187B", "pdl 33187",
                        "Buchungscode K7QP3W", "Betriebsausweis 33187",
                        "Schüler-ID 33187", "Kundenkarte 331 870", "client_no: 33187"),
    "account-by-name": ("Festgeldkonto 33 1870", "Konto: 331870", "Kto. 33187 0"),
    "street-number-first": ("12 Old Mill Lane", "221B Baker Street", "1600 Elm St."),
    "street-number-first-romance": ("12 rue de la Paix", "3, avenue Foch",
                                    "5 bis chemin des Dames"),
    "street-name-first": ("Via Roma 12", "ul. Długa 5/7", "Calle Mayor, 3",
                          "Rua Augusta nº 24"),
    "street-one-word": ("Lindenstraße 7", "Storgatan 12", "Keizersgracht 174"),
    "street-two-words": ("Lange Straße 7", "Am Markt 3", "Unter den Linden 77"),
    "street-hungarian": ("Király u. 15.", "Árpád fejedelem útja 45", "Csabai kapu 39."),
    "street-name-first-small": ("via roma 12", "calle mayor, 3", "rua das flores 5"),
    "street-one-word-capital": ("Kurfürstendamm 21", "Elbchaussee 12", "Parkkade 3"),
    "street-before-postcode": ("Schlossberg 4, 88212 Ravensburg",
                               "Oude Delft 12, 2611 CC", "Bergkamp 9a\n22303 Hamburg"),
    "street-corner": ("the corner of Dalbraut 99 and Frederikke Coves",
                      "intersection of Main and Elm", "corner of 5th Avenue and Pine"),
    "street-east-asia": ("東京都千代田区丸の内1-1", "北京市朝阳区建国路88号",
                         "강남구 테헤란로 152"),
    "post-box": ("P.O. Box 1234", "Postfach 4711", "PSC 1437, Box 3833"),
    "unit-number": ("Apt. 5", "suite 200", "Flat 3b"),
    "live-at": ("I live at 12 Elm", "Adresse: Weg 12", "my address is Hill House 40"),
    "address-fields": ('"strasse": "Am Hang", "hausnummer": "9"',
                       "<rue>des Forges</rue><numero>9</numero>",
                       "straat=Parklaan;huisnummer=9"),
    "state-and-zip": ("Springfield, IL 62704", "TX 75001-1234", "CA, 90210"),
    "zip-labelled": ("zip code 62704", "PLZ 10115", "code postal: 75001"),
    "uk-postcode": ("SW1A 1AA", "at EC1A 1BB", "K1A 0B1"),
    "post-code-and-place": ("D-10115 Berlin", "00-950 Warszawa", "1012 AB Amsterdam"),
    "post-code-and-town": ("10115 Berlin", "75011 Paris", "8002 Zürich"),
    "post-code-bare": ("1012AB", "01310-100", "C1043AAZ"),
    # --- attributes ---------------------------------------------------------
    "dob-near": ("your date of birth. It's 3/11/1995", "birth: 1990-02-01",
                 "geboren wurde sie am 12.03.1980"),
    "sex-and-trade": ("a female beekeeper from Ohio", "a male nurse aged 50",
                      "a female judge in Bonn"),
    "zip-from": ("the baker from 62704", "she lives in 62704.", "residing in 10115"),
    "dob": ("born March 3rd, 1982", "dob 12 May 1980", "DOB: 3/4/1980",
            "Geburtsdatum: 3. Mai 1980", "née le 12 juin 1975",
                "fecha de nacimiento: 3 de mayo de 1980"),
    "dob-in-words": ("nací el doce de marzo de mil novecientos ochenta y siete",
                     "nació el veinte y uno de mayo de dos mil tres",
                     "nasci em três de abril de dois mil e um"),
    "mx-rfc": ("RFC: GODE561231GR8", "mi RFC es GODE561231GR8", "rfc ABC680524P76"),
    "dob-star": ("Bewohnerin, *03.08.1941", "(*3.8.1941)", "patient, 03/08/41"),
    "dob-in-german-or-french": (
        "am dritten Mai neunzehnhunderteinundvierzig geboren",
        "geboren wurde er am dritten Mai zweitausendzwei",
        "née le trois mai mille neuf cent quarante et un"),
    "dob-after": ("3/4/1980 is my date of birth", "1980-03-04 is his birthday",
                  "12.05.1980 as DOB"),
    "textual-date": ("March 3rd, 1982", "12 May", "3-Mar-1982", "on the 4th of July"),
    "textual-date-foreign": ("3. Mai 1980".replace("Mai", "Oktober"), "12 juin 1975",
                             "3 de mayo de 1980"),
    "numeric-date": ("12/31/1999", "1982-03-03", "3.4.1980"),
    "age": ("I am 45", "a 34 year old", "aged 34", "mit 34 Jahre alt",
                "when she was 12"),
    "age-short": ("34 y/o", "34yo man", "a 34 y.o."),
    "age-spelled": ("thirty-four years old", "sixteen year old", "a twenty year-old"),
    "age-and-sex": ("I (34F) and he [M 41]", "(28 M)", "34F with chest pain"),
    "age-90": ("a 93-year-old", "aged 93", "she is 101", "turned 97"),
    "age-90-short": ("93 y/o", "102yo", "93F with falls"),
    "age-90-spelled": ("ninety-three years old", "ninety year old",
                "ninety-one-year-old"
                       .replace("-year-old", " year old")),
    "home-city": ("I live in Springfield", "born in Lyon", "moved to Oslo"),
    "employer": ("I work at Initech", "she works for Acme", "who worked at Globex"),
    "occupation": ("I work as a nurse", "my job is plumbing", "occupation: welder"),
    "biometric": ("my fingerprint", "the patient's retina scan",
                "stored iris template"),
    "biometric-template": ("fingerprint template: 9a3f2c11", "faceprint=ab12cd34",
                           "biometric_id: 77fe01"),
    # --- cards and accounts -------------------------------------------------
    "pan": ("2221000000000009", "6304000000000000", "4000000000000000006",
            "3530111333300000", "5018 0000 0009"),
    "pan-shape": ("4111 1111 1111 1112", "5500-0000-0000-0005", "3782 822463 10006"),
    "card-labelled": ("card number 4111 1111 1112", "visa 411111111111",
                      "numéro de carte 4111111112"),
    "pan-masked": ("xxxx-xxxx-xxxx-1234", "411111******1111", "card ending in 4242"),
    "cvv": ("cvv is 123", "CVC2: 1234", "security code 321"),
    "card-expiry": ("exp 12/27", "valid thru 03/2028", "gültig bis 11/26"),
    "card-track": ("%B4111111111111111^DOE/J^2512101", ";4111111111111111=25121010000?",
                   "B5500000000000004^ROE/JANE^2701"),
    "iban": ("GB82 WEST 1234 5698 7654 32", "DE89370400440532013000",
             "FR14 2004 1010 0505 0001 3M02 606"),
    "iban-shape": ("GB82 WEST 1234 5698 7654 33", "DE89370400440532013001",
                   "NL91 ABNA 0417 1643 01"),
    "iban-labelled": ("IBAN: DE89 3704 0044", "iban GB82WEST1234",
                "my IBAN is FR14 2004"),
    "account-number": ("account number 12345678", "Kontonummer 1234567",
                       "numéro de compte: 00012345"),
    "aba": ("routing number 021000021", "ABA 011401533", "rtn: 091000019"),
    "swift": ("SWIFT DEUTDEFF500", "bic: CHASUS33", "BIC is BNPAFRPP123"),
    "swift-letters": ("SWIFT DEUTDEFF", "BIC: BNPAFRPP", "bic code is NEDSZAJJ"),
    "ein": ("EIN 12-3456789", "VAT: GB 123 4567 89", "USt-ID DE123456789"),
    "crypto-address": ("0x52908400098527886E0F7030069857D2E4169EE7",
                       "bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq",
                       "1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2"),
    "income": ("my salary is $85,000", "I earn about 4000", "Gehalt: 3.500"),
    "income-after": ("$85,000 a year before tax", "£30k per annum gross",
                     "€2000 a month net"),
    "balance": ("my balance is $4,210", "I owe $900", "mortgage of £200k"),
    "credit-score": ("credit score of 640", "FICO: 712", "a 580 credit score"),
    # --- health -------------------------------------------------------------
    "mrn": ("MRN 00482913", "patient id P-48291", "Fallnummer 99127"),
    "plan-id": ("member id W1234 56", "medicare number 1EG4-TE5-MK73",
                "Versichertennummer A123456780"),
    "npi": ("NPI 1234567893", "npi: 1245319599", "NPI is 1992739965"),
    "dea": ("DEA AB1234563", "dea number BJ6125341", "DEA: F91234563"),
    "reading": ("A1c of 9.2", "blood pressure 140/90", "BP: 120/80"),
    "dose": ("500 mg", "take 20mg daily", "75 mcg"),
    "icd-code": ("E11.9", "code J45.20", "F32.1 noted"),
    "icd-labelled": ("ICD-10: E119", "diagnosis code 250.00", "CPT 99213"),
    # --- law ----------------------------------------------------------------
    "docket": ("Case No. 1:20-cv-01234", "docket 2:19-cr-00123",
                "cause no. 3:21-md-2999"),
    "docket-bare": ("1:20-cv-01234", "see 22-cv-1234", "3:19-bk-30088"),
    "docket-labelled": ("Docket No. FST-CV-15", "Aktenzeichen 3 C 123/20",
                        "zaaknummer 200.123.456"),
    "privilege": ("attorney-client privileged", "litigation privilege applies",
                  "work product doctrine"),
    "export-control": ("subject to ITAR", "this is EAR99", "22 CFR 121"),
    "usml-category": ("USML Category XI(c)", "munitions list cat. IV",
                "USML, Category VIII"),
    "eccn": ("ECCN 3A001", "ECCN: 5A002.a",
                "export control classification number 9E003"),
    "eccn-bare": ("5A002.a", "4A994 controlled", "under 3E001.b too"),
    "controlled-marking": ("CUI//SP-CTI", "controlled unclassified information",
                           "Distribution Statement D"),
    "noforn": ("NOFORN", "TOP SECRET//SI", "marked S//NF"),
    "confidential-marking": ("Internal use only", "a trade secret",
                "streng vertraulich"),
    # --- told secrets -------------------------------------------------------
    "private-key": ("-----BEGIN " + "RSA PRIVATE KEY-----",
                    "-----BEGIN " + "PGP PRIVATE KEY BLOCK-----",
                    "AGE-SECRET-KEY-1" + "Q" * 58),
    "private-key-body": ("MIIEpA" + "IBAAKCAQEA1234", "MHcCAQ" + "EEIAbcdefghij",
                         "b3BlbnNzaC1r" + "ZXktdjEAAAAABG5vbmU"),
    "secret-file": ('"private_' + 'key_id": "' + "a1" * 12 + '"',
                    "kind: Secret\ndata:\n  pw: c2VjcmV0",
                    "private_" + "key: 'abcdefghijklmnopqrstu'"),
    "bearer": ("Authorization: Bearer abcdef123456789", "Basic dXNlcjpwYXNzd29yZDEy",
               "token abc.def-1234567"),
    "dsn": ("postgres://app:s3cret@db/prod", "redis://:s3cret@cache:6379",
            "mongodb+srv://u:p@h.example"),
    "dsn-fields": ("Server=db;Database=x;Pwd=hunter2", "Data Source=a;Password=b12",
                   "host=h;user=u;password=p1"),
    "dsn-words": ("user=app host=db password=s3cret", "uid=sa;pwd=S3cret!",
                  "sqlplus scott/tiger@orcl"),
    "key-assigned": ("API_KEY=abcd1234efgh", "client-secret: 'a1b2c3d4e5'",
                     "signingKey = zz11yy22xx"),
    "key-told": ("my api key is abc12345", "license key: AAAA-1111",
                "auth code is x9y8z7"),
    "seed-phrase": ("seed phrase: " + "apple river " * 6,
                "my mnemonic is " + "cat dog " * 6,
                    "wallet words are " + "sun moon " * 6),
    "password-told": ("my password is hunter2", "Passwort: geheim99",
                      "mot de passe est soleil12"),
    "password-quoted": ("the password 'open-sesame'", 'pwd for it "tulip"',
                        "passcode is the “blue”"),
    "password-with-digit": ("password hunter2", "passcode to abc123", "pwd s3cret"),
    "password-run-together": ("passwordishunter2", "passphrasewastulip!",
                              "passwd=" + "abc123"),
    "password-after": ("hunter2 is my password", "use tulip99 as the wifi password",
                       "'abc123' was her passcode"),
    "pin": ("my pin is 4821", "die PIN der Karte lautet 4821",
            "code secret de mon compte : 4821",
            "otp: 993311", "door code 4711", "pin=8841",
            "My PIN for the debit card is 8841", "the pin of my card is 8841"),
    "credentials-pair": ("login admin/hunter2", "creds are bob : s3cret",
                         "sign in with joe and pass1"),
    "command-password": ("db --password=hunter2", "curl -u joe:s3cret",
                         "PGPASSWORD=abc psql"),
    # --- settings, commands, calls ---------------------------------------------
    "password-variable": ("db_password = 'tulip'", "dbPassword: Fuchsbau77",
                          "api_secret: with-a-dash", "user.secret_key = 'a-b-c'"),
    "password-environment": ("DB_PASSWORD: tulip-and-rose", "PG_PASSWORD: winterfell",
                             "ADMIN_PW=tulips"),
    "password-line": ("db_pass: tulips\n", "spring.datasource.password=tomcat\r\n",
                      "root_pw=winterfell\n"),
    "password-short": ("pass: Fuchsbau77", "psk=winter7", "credential = 'abc123'",
                       "pw: zx81y"),
    "token-variable": ("TOKEN=abcd1234efgh5678", "JWT_SECRET: opensesame77",
                       "SECRET_KEY_BASE=opensesame77xyz"),
    "key-spaced": ("aws_secret_access_key wJalrXUtnFEMIbPxRfiCY",
                   "access_token  ABcdEFghIJklMNop", "client_secret aBcD1234eFgH5678"),
    "command-credential": ("mysql -u root -pFuchsbau77", "mysqldump -ps3cret shop",
                           "net user bob Fuchsbau77 /add",
                           "curl -s --user bob:Fuchsbau77 https://a.example",
                           "kubectl create secret --from-literal=pass=Fuchsbau77",
                           "echo Fuchsbau77 | sudo -S ls", "redis-cli -a tulips ping",
                           "smbclient //srv/x -U bob%Fuchsbau77",
                           "docker login -u bob -p tulips", "unzip -P tulips a.zip",
                           'ConvertTo-SecureString "tulips" -AsPlainText'),
    "password-named": ("- name: DB_PASSWORD\n  value: winterfell",
                       "ENV DB_PASSWORD Fuchsbau77", "define('DB_PASS', 'abc123');",
                       "| password | Fuchsbau77 |", 'setPassword("Fuchsbau77")',
                       "password:\n  Fuchsbau77", 'key="Password" value="tulip"'),
    "password-statement": ("ALTER USER app IDENTIFIED BY Fuchsbau77;",
                           "identified by 'tulips'", "requirepass Zx81Spectrum",
                           "rootpw --plaintext s3cret"),
    "call-credential": ("pymysql.connect('db', 'root', 'Fuchsbau77', 'shop')",
                        "mail.login('bob', 'tulips')", "auth=('bob', 'tulips')",
                        'WiFi.begin("home", "tulips");',
                        'new mysqli("h", "u", "tulips")'),
}  # fmt: skip


def key(prefix: str, count: int, alphabet: str = "a1B2c3D4e5") -> str:
    return prefix + (alphabet * 40)[:count]


HEX = "0a1b2c3d4e"
UP = "A1B2C3D4E5"
KEYS: dict[str, tuple[str, ...]] = {
    "aws-access-key": (key("AKIA", 16, UP), key("ASIA", 16, UP), key("ABIA", 16, UP)),
    "aws-bedrock-key": (key("ABSK", 100), key("bedrock-api-key-", 40), key("ABSK", 60)),
    "alibaba-key": (key("LTAI", 16), key("LTAI", 20), "id " + key("LTAI", 24)),
    "google-key": (key("AIza", 35), "k=" + key("AIza", 35), key("AIza", 33)),
    "google-oauth": (key("ya29.", 40), key("GOCSPX-", 28), key("1//0", 40)),
    "azure-client-secret": tuple(
        f"{head}8Q~{key('', count)}" for head, count in (("abc", 34), ("x.y", 31),
                ("a-b", 33))
    ),
    "azure-key": (key("AccountKey=", 40), key("SharedAccessKey=", 44), key("sig=", 30)),
    "digitalocean-token": tuple(key(f"do{c}_v1_", 64, HEX) for c in "opr"),
    "yandex-key": (key("AQVN", 36), key("YCA", 37), key("y0_", 55)),
    "platform-token": (
        key("fo1_", 40), key("fm2_", 80), key("HRKU-", 40), key("dnkey-", 60),
        key("tskey-", 30), key("dp.pt.", 43), key("hvs.", 90), key("pul-", 40, HEX),
        key("dapi", 32, HEX), key("sha256~", 43), key("pnu_", 36),
        key("abcd1234efgh56.atlasv1.", 64), key("sbp_", 40, HEX), key("nfp_", 36),
        "dt0c01." + key("", 24, UP) + "." + key("", 64, UP), key("CLOJARS_", 60, HEX),
    ),
    "github-token": (key("ghp_", 36), key("gho_", 36), key("github_pat_", 60)),
    "gitlab-token": (key("glpat-", 20), key("gldt-", 20), key("glrt-", 20),
                     key("GR1348941", 20), key("glagent-", 50)),
    "atlassian-token": (key("ATATT3", 180), key("ATBB", 32), key("ATCTT3", 180)),
    "package-token": (key("npm_", 36), key("pypi-", 100), key("rubygems_", 48, HEX)),
    "hub-token": (key("hf_", 34), key("r8_", 37), key("dckr_pat_", 27)),
    "build-token": (key("CCIPAT_", 40), key("sqp_", 40, HEX), key("sgp_", 40, HEX),
                    key("API-", 26, UP), key("AKCp", 69), key("ico-", 32)),
    "slack-token": (key("xoxb-", 40), key("xoxp-", 60), key("xapp-1-", 40)),
    "web-hook": (
        "hooks.slack.com/" + "services/T0000/B0000/abcdefgh12",
        "acme.webhook.office.com/webhookb2/" + key("", 60),
        "discord.com/api/webhooks/123456789012345678/" + key("", 68),
    ),
    "stripe-key": (key("sk_live_", 24), key("rk_test_", 24), key("whsec_", 32)),
    "payment-key": (key("sq0atp-", 22), key("rzp_live_", 14), key("EZAK", 54),
                    key("shippo_live_", 40, HEX), key("duffel_test_", 43),
                    key("FLWSECK_TEST-", 32, HEX)),
    "openai-key": (key("sk-", 48), key("sk-proj-", 60), key("sk-ant-api03-", 90)),
    "model-key": (key("pplx-", 48), key("gsk_", 52), key("xai-", 80)),
    "sendgrid-key": tuple(f"{key('SG.', 22)}.{key('', n)}" for n in (43, 40, 50)),
    "twilio-key": (key("AC", 32, HEX), key("SK", 32, HEX), "sid " + key("AC", 32, HEX)),
    "mail-key": (key("key-", 32, HEX), key("", 32, HEX) + "-us12", key("pubkey-", 32,
                HEX)),
    "observability-key": (key("NRAK-", 27, UP), key("glsa_", 41), key("sntrys_", 60),
                          key("PMAK-", 59), key("eyJrIjoi", 80)),
    "workspace-key": (
        key("lin_api_", 40), key("ntn_", 43), key("figd_", 40), key("CFPAT-", 43),
        key("pscale_pw_", 43), key("shpat_", 32, HEX), key("tfp_", 59), key("EAA", 60),
        key("pat", 14) + "." + key("", 64, HEX), key("sm_pat_", 16),
        "A3-A1B2C3-" + key("", 11, UP) + "-A1B2C" * 3, key("ops_eyJ", 250),
    ),
    "json-web-token": (
        "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "jwt eyJhbGciOiJub25l" + "In0.eyJhIjoxfQ.", key("ZXlK", 80),
    ),
    "telegram-token": (key("123456789:", 35), key("12345678:", 35), key("1234567890:",
                34)),
    "discord-token": tuple(
        f"{head}{key('', 23)}.{key('', 6)}.{key('', 27)}" for head in "MNO"
    ),
}  # fmt: skip
NAMED = tuple(rule.id for rule in SECRETS if rule.id.endswith("-named-key"))
HARMLESS = (
    "The quick brown fox jumps over the lazy dog, as every typist knows.",
    "Explain how photosynthesis works in three short paragraphs.",
    "Our RTX 4090 beats the GTX-1080 in Cyberpunk 2077 at 60 fps.",
    "ISO 9001, RFC 2616 and IEEE 802.11 are standards; so is DIN A4.",
    "Boeing 737-800, Airbus A320 and the B-52 are aircraft.",
    "SKU AB-1234-56 costs $19.99, down from $24.99, in sizes 8 to 12.",
    "In chapter 12 the 3 friends walk 20 miles in 4 days.",
    "for i in range(10): print(f'{i:02d}', data[i]['name'])",
    "x = {'a': 1, 'b': [2, 3]}; y = x.get('a', 0) + 5",
    "SELECT id, name FROM users WHERE age_group = 3 ORDER BY name LIMIT 10;",
    "Windows 11, Python 3.11.4, Ubuntu 22.04 and version v2.10.3-rc1",
    "How do I reset my password if I forgot it? Is my pin safe?",
    "The password is not working and the token is invalid.",
    "What is a routing number, and where is the account number on a check?",
    "What does an IBAN look like? How long is a SWIFT code?",
    "My order no 4711 arrived, ticket #8812 is closed.",
    "I need 3 eggs, 200 g of flour, 1/2 cup of milk and 2 tsp of salt.",
    "meet at 12:30, gate B7, seat 23C, platform 9 3/4",
    "between 1990-2000 and 2024/2025, in 2012, 2015 and 2018",
    "C4, S3, EKS, H2O, CO2, MP3, 4K and the C4 model",
    "git commit 3f9a2b1, issue #123, PR 456, build 20.04",
    "f(x) = 3x^2 + 2x - 7 has roots at x = 1.23 and x = -1.9",
)


def ids(rules: PatternSet, text: str) -> set[str]:
    return {
        span.detector
        for span in rules.find(Reading(normalization=Normalization.RAW, text=text))
    }


EXAMPLES = [(name, text) for name, texts in {**FOUND, **KEYS}.items() for text in texts]


@pytest.mark.parametrize(("rule", "text"), EXAMPLES)
def test_rule_finds_its_examples(rule: str, text: str) -> None:
    assert rule in ids(every_pattern(), text)
    assert rule in ids(
        every_pattern(), f"so: {text} and more".replace("\n and", "\nand")
    )


@pytest.mark.parametrize("rule", NAMED)
def test_a_vendors_name_before_a_value_is_a_key(rule: str) -> None:
    vendor = rule.removesuffix("-named-key").replace("-", "_")
    value = "a1b2c3d4" * 4
    for text in (f"{vendor}_api_key = '{value}'", f"{vendor.upper()}_TOKEN={value}",
                 f"my {vendor} token is {value}"):  # fmt: skip
        assert rule in ids(every_pattern(), text)
    for text in (f"what is a {vendor} token?", f"{vendor} key: none", f"{vendor}: 12",
                 f"{vendor}_key = os.environ['{vendor.upper()}_KEY']"):  # fmt: skip
        assert rule not in ids(every_pattern(), text)


@pytest.mark.parametrize("text", HARMLESS)
def test_no_rule_sees_an_identifier_in_a_harmless_text(text: str) -> None:
    kept = ("identifier.direct.", "financial.", "secret.", "legal.", "export.", "org.",
            "health.mrn", "health.plan_id")  # fmt: skip
    rules = {rule.id: rule.data_class for rule in (*PATTERNS, *SECRETS)}
    assert [
        name for name in ids(every_pattern(), text) if rules[name].startswith(kept)
    ] == []


# Near misses, each with the rule that must leave it alone.
LEFT: dict[str, tuple[str, ...]] = {
    "street-number-first": ("360 square feet", "at 8 on the way up",
                "2 way street".upper()
                            .lower().replace("street", "radio")),
    "street-one-word": ("the allee 1.5", "straat", "platz 10:30"),
    "street-one-word-capital": ("investigate 10 cases", "a decade 3 times", "Damm 2"),
    "street-name-first-small": ("via orale 3.", "via mail 2,", "corso di 12."),
    "street-before-postcode": ("GRUR 2014, 1204 Rdnr", "Kapitel 3, 10115 Menschen"),
    "post-code-and-town": ("1945 Wien", "10000 Menschen", "2024 Berlin"),
    "post-code-bare": ("1000EUR", "2023SS", "12345-6789"),
    "street-name-first": ("via email 24/7".replace("24/7", "only"), "corso of action",
                          "rue the day"),
    "uk-postcode": ("B2B 4U", "A1 2B", "sw1a 1aa"),
    "vin": ("1M8GDM9A0KP042788", "1M8GDM9AXKP04278", "IIIIIIIIIIIIIIIII1"),
    "vin-labelled": ("vin diesel in 2001", "find a car from 2/28 on",
                "the final 12 rounds"),
    "email-told": ("sold at example dot", "good at the point of sale", "look @ this.ok",
                   "point de vue at home"),
    "phone-extension": ("Klappe 2", "der Apparat 5-7", "poste de 35 heures",
                        "bureau de poste 75012", "Nebenstelle 2024", "poste 12 : 44"),
    "plate-france": ("DK-708-WRX", "A-DK-708-WR", "dk-708-wr", "IO-708-OI",
                     "DK 708 WR"),
    "plate-switzerland": ("BE 318 000", "BE 2024", "be 318 772", "VS 90 551 220"),
    "plate-beside": ("a 2015 passat", "die Moto 250 cc", "Auto für 12 500 Euro",
                     "voiture de 150 cv", "im Wagen 12", "ein Golf 7 von 2019"),
    "vin-europe": ("WAUZZZ8K9BA10034", "wauzzz8k9ba100345", "1FTFW1ET5DFC10002"),
    "address-fields": ('"street": "string", "number": "string"',
                       "strasse = null"),
    "dob-star": ("* 12.03.2024 Treffen", "2 * 3.4", "a*12", "(* 28. August 1749)"),
    "dob-in-german-or-french": ("am dritten Mai geboren", "née en Bretagne"),
    "reference-compound": ("Ersatzteilnummer 44-318", "Zugnr. 3318", "UN-Nummer 1830",
                           "CAS-Nr. 64-17-5", "Die Zimmernummer 3318",
                           "treinnummer 3318",
                           "Kundennummer 2024", "welche Kundennummer?", "Nummer 33187",
                           "die Nummern 331 und 872", "Artikelnr. 3318-7"),
    "reference-number-of": ("loi n° 2018-493", "n° d'article 3318",
                            "numéro de page 3318",
                            "numéro de vol AF 3318", "n° 33187", "n° de série 3318",
                            "réf. produit 33187", "numéro ONU 1830"),
    "reference-numbered": ("train n° 3318", "patient no. one", "client n° 2",
                           "dossier n° 2024", "carte n° 3"),
    "reference-named": ("dossier 2024", "ein Ausweis kostet 37 Euro",
                        "pnr: what is it?",
                        "un titre de séjour de 4 ans"),
    "account-by-name": ("Konto 4400 oder 8400", "Sparkonto mit 33187 Euro",
                        "Konto: 331870 Euro", "Kontonummer 8400"),
    "iban-labelled": ("what is an iban?", "IBAN of 22 letters", "iban checker"),
    "ipv4": ("999.1.1.1", "127.0.0.1", "255.255.255.0", "version 1.2.3.4.5"),
    "ipv6": ("std::vector", "x::y", "12:30:45", "::1"),
    "mac": ("aa:bb:cc:dd:ee", "12:34:56", "00-11-22-33-44"),
    "pan": ("4111111111111112", "000000000000", "411111111111111"),
    "pan-shape": ("1111 1111 1111 1111 1", "9999-9999-9999-9999", "4111 1111 1111"),
    "pan-masked": ("**bold** 1234 text".replace("1234", "one"), "wait.... 2024",
                "xx 12"),
    "iban": ("GB82 WEST 1234 5698 7654 33", "ZZ00",
                "flight ab123 and my luggage is now lost"),
    "swift-letters": ("SWIFT language", "swift answer", "BIC pens"),
    "aba": ("a routing table with 9 rows", "aba routing", "transit 12"),
    "credit-score": ("credit of 1200", "score 640", "credit card 12"),
    "npi": ("npi 999", "NPI lookup", "npi number 3123456789"),
    "icd-code": ("E11", "v1.25", "U2.live"),
    "eccn-bare": ("5A002", "3B123.c", "9Z001.a"),
    "docket-bare": ("1:20-xx-01234", "20-cvs", "12-cr"),
    "dob-near": ("birth rates fell 3/4", "born free", "his birth in 1990"),
    "sex-and-trade": ("a male from Ohio", "female nurses", "a female cat"),
    "zip-from": ("from 10000 to 20000", "from 50000 euros", "live in 2024"),
    "dob": ("born in the USA", "a birthday party for 12", "newborn 3 weeks"),
    "age": ("page 12", "I am 45%", "I'm 3.5 stars", "manage 3 people"),
    "age-short": ("4 yoga mats", "yo 34", "34 yolks"),
    "age-and-sex": ("(2F)", "34F outside today", "F-150"),
    "age-90": ("page 93", "95% sure", "I am 95% done"),
    "numeric-date": ("1/2", "3.11.4.5", "24/7/365/1"),
    "twilio-key": ("AC" + "x" * 32, "BACK" + "0" * 20, "SK12"),
    "openai-key": ("sk-learn is a library", "ask-me-anything-anywhere"[1:5], "sk-12"),
    "github-token": ("ghp_short", "github_pat_", "the gho_ prefix"),
    "json-web-token": ("eyJ", "eyJabc", "key.eyJ"),
    "dsn": ("https://example.com:8080/a@b", "http://a.example/x", "mailto:a@b.example"),
    "password-run-together": ("passwordIsValid(user)", "passwordless", "password: str"),
    "password-told": ("my password is wrong", "the password is not set",
                "password: str"),
    "password-after": ("what is the password?",
                "this is my password manager v2".replace(
        "v2", "app"), "a1 is it"),
    "key-assigned": ("api_key = None", "secret_key=os.environ", "client id: unknown"),
    "pin": ("pin 3 to the wall", "a pin number", "pinned 2024 posts".replace("2024",
                "20")),
    "email": ("a @ b", "@decorator", "def f(a, b): return a @ b"),
    "handle": ("@media (max-width: 600px)", "@Override", "a@b_c1"),
    "phone-grouped": ("123-456", "1-212-555-01000", "212.555.0100.1"),
    "cookie": ("cookie: yes", "chocolate chip cookies", "sid=short"),
    "biometric": ("how do fingerprints work?", "a retina display",
                "fingerprint reader"),
    "privilege": ("a privilege to meet you", "white privilege", "sudo privileges"),
    "export-control": ("guitar", "export to CSV", "ear 99"),
    "noforn": ("no foreigners", "secret sauce", "// NF comment".lower()),
    "controlled-marking": ("cuisine", "a distribution statement", "unclassified"),
    "password-variable": ("user_password: string", "db_password = get_password()",
                          "self.user_password = user_password", "first_pass: int = 3",
                          "DB_PASSWORD=${SECRET}", "new_secret: SecretStr",
                          "one_pass = first_pass + 1", "db_password = '<your own>'",
                          "user_password: 'password'", "compass: a-north",
                          "db_password = read_v2(x)", "low_pass: 20000"),
    "password-environment": ("the MYSQL_ROOT_PASSWORD variable?", "DB_PASSWORD={{ x }}",
                             "DB_PASSWORD: process.env.PW", "DB_PASS=changeme",
                             "DB_PASSWORD = os.getenv('X')", "db_password: str"),
    "password-line": ("user_password: string\n", "f(db_password=password)\n",
                      "auto_pass: false\n", "dbPassword: hash,\n"),
    "password-short": ("pass: a way through mountains", "if (pass) {", "bypass: a1b2c3",
                       "    pass\n", "secret: the 3rd one", "pass: 20000"),
    "token-variable": ("token: the smallest unit of text", "max_tokens=4096",
                       "const token = req.headers.authorization2",
                       "secret = base64.b64encode(data)", "token: null"),
    "key-spaced": ("the api_key parameter", "access_token aaaaaaaaaaaaaaaaaaaa",
                   "primary_key AutoIncrementingField(x)", "foreign_key user_accounts"),
    "command-credential": ("mysql -u root -p shop", "mysql -P3306 -h db",
                           "net user bob /delete", "net user bob * /add",
                           "docker run --user 1000:1000 a", "mysql -u a -p$PASS",
                           "echo $PASS | sudo -S ls", "ps -U root", "unzip -p a.zip",
                           "docker run -p 8080:80 x"),
    "password-named": ('["password", "email"]', "setPassword(newPassword1)",
                       "user_password varchar(255)", "the DB_PASSWORD variable",
                       "ENV DB_PASSWORD ${X1}", "name: DB_PASSWORD\n  valueFrom: x",
                       "| password | string |"),
    "password-statement": ("the user was identified by researchers",
                           "what does requirepass do?", "identified by ${SECRET1}"),
    "call-credential": ("connect('a', 'b', 'password')", "connect('a.db')",
                        "login(user, 'tulips')", "login('bob', '<password>')"),
    "crypto-address": ("0x1234", "bc1", "1" * 10),
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "text"), [(rule, text) for rule, texts in LEFT.items() for text in texts]
)
def test_rule_leaves_near_misses_alone(rule: str, text: str) -> None:
    assert rule not in ids(PatternSet([rule_of(rule)]), text)


def rule_of(name: str) -> PatternRule:
    return next(rule for rule in (*PATTERNS, *SECRETS) if rule.id == name)


def test_every_rule_has_three_examples() -> None:
    given = {**FOUND, **KEYS}
    assert {name for name, texts in given.items() if len(texts) < 3} == set()
    assert set(RULES) - set(given) - set(NAMED) == set()
    assert set(given) - set(RULES) == set()
