"""Words that may begin with a capital and name nobody.

Without a model every capital inside a sentence could be a name. These lists
say which are not, so that ordinary questions may leave. They are this
project's own; a missing word costs a query its way out, nothing else.

Given names and surnames that are common enough to know, and where they trip.

No gazetteer: some twelve hundred names of many origins, written for this project,
so that the commonest are found in lower-case text and at the head of a sentence.
What is not listed is found by its capital, by a model, or not at all.

Tell ordinary words from others, by list and by ending.
"""

import re


def words(text: str) -> frozenset[str]:
    """Return the words of a list that is written as text."""
    return frozenset(text.split())


# Ordinary words, in their basic form; ``names`` knows how they are inflected.
COMMON = words("""
a able about above accept accepted access according account accounts accurate
achieve acid across act action actions active activities activity actually ad add
added adding addition additional address adjust ads adult advanced advantage
advantages advice affect after afternoon again against age agency agent ago agree
agreement ah ahead aim air airline airport alarm album algorithm algorithms all
allow allowed allows almost alone along already alright also alternative although
always am amazing among amortization amount amounts an analyse analysis analyze and
angle animal animals announce annual annuity another answer answers any anyone
anything anyway apart app apparently appeal appear apple application applications
apply appointment approach appropriate approve approved approximately apps
architecture are area areas argue argument around arrange array arrays arrival
arrive arrived art article articles artificial artist arts as ask asked asking
aspect assess assessment asset assets assign assist assistant associate assume
assuming assumption at atom atoms attach attack attempt attend attention attribute
audience audio audit author authority authors auto automatic automatically available
average avoid award aware away baby back background bacteria bad bag bake balance
ball band bank banker banking banks bar bars base based baseline basic basically
basics basis basketball batch bathroom battery be beach beautiful became because
become bed bedroom beer before begin beginner beginning behavior behaviour behind
being believe below benefit benefits beside best better between beyond bias big bike
billing bills binary bio biology bird birds birth birthday bit black block blog blue
board boat body bond bonds book booked booking books boot both bottom bought bowl
box boy braces brain branch brand brands bread break breakfast breaking breaks
bridge brief briefly bring broad brochure broken brother brought brown browser
budget buffer bug bugs build building buildings built bulk bullet bus business
businesses busy but button buy buyer by byte bytes cable cache cake calcium
calculate calculation calculator calendar call called calls calorie calories came
camera camp campaign can cancel cannot cant capable capacity capital captain car
carbon card cardholder cardinal cards care career careful carefully carry cars case
cases cash cat categorize category cats cause caused causes cell cells center
central centre century certain certainly certificate chain chair challenge
challenges chance change changed changes changing channel chapter character
characters charge chargeback charged charges charging charity chart charts chat
cheap cheapest check checked checking checklist checkout cheese chemical chemistry
chest chicken chief chloride choice choices choose chosen church circle circuit
circumstances citation cite cities citizen city claim claims class classes classic
classification classify clause clean clear clearly click client clients climate
clinic clinical clinics clock close closed closing cloth clothes clothing cloud club
cluster coach coast code codes coding coffee coin cold collaboration collateral
collect collection college color colors colour column columns combine combined come
comes comic coming command comment comments commercial commit committee common
communicate communication communities community companies company compare compared
comparing comparison compatible compensation compete competition competitive
competitor competitors compile compiler complaint complaints complete completed
completely complex compliance complicated component components compose compound
comprehensive compress compute computer computers computing concept concepts concern
conclude conclusion condition conditions conduct conference confirm confirmation
conflict connect connected connection consent consequences conservation consider
considered considering considers consist constant constraint constraints construct
construction consultant consumer consumers contact contactless contacts contain
contains content contents contest context continue continued contract contracts
contrast contribute control controller controls convenience conversation convert
converted converting convince cook cookies cooking cool copy core corner corporate
correct corrected correctly correlation cost costs could council count counter
countries country county couple course courses court cover coverage covers craft
create created creates creating creation creative credit credits criteria critical
criticism critique cross crossing crowd crypto cube cultural culture currencies
currency current currently curriculum curve custom customer customers cut cycle
daily damage dance danger dark data database databases dataset date dates daughter
day days dead deadline deal dealing dear death debit debt debts debug decade decide
decided decimal decision decisions declare declined decrease deduce deep default
defend define defined definition degree degrees delay delayed delete deleted deliver
delivered delivery demand demands democracy demonstrate dental department depend
dependent depending depends deposit deposited deposits depreciation depth derive
derived describe described description design designed designs desk despite
destination detail detailed details detect detection determine develop developed
developer developers developing development device devices devise diagram dialogue
dictionary did didn't diet difference differences different differential
differentiate difficult digit digital digits dimension dinner direct direct-debit
direction directions directly director directory dirty disadvantages disappear
disappeared discount discover discovery discuss discussion dish disk display
displayed dispute distance distributed distribution district dive divide divided
dividend dividends division do document documentation documents does doesn't doesnt
dog dogs doing dollar dollars domain domestic don't done dont door double doubt down
download downloaded downloading draft dragon drama draw drawing drawn dream dress
drink drinks drive driver drivers drives driving drop due duration during dust
duties duty dynamic each earlier early earn earth easier easily east eastern easy
eat eating economic economics economy edge edit editing edition editor education
effect effective effectively effects efficiency efficient effort egg eggs eight
either elaborate election electric electrical electricity electron electronic
element elements elevator eleven else email emails embed emergency emotional
employee employees employer employment empty enable encourage end ended ending ends
energy engage engine engineer engineering engineers enhance enjoy enough ensure
enter entered enterprise entire entities entity entrance entries entry enumerate
environment environmental environments enzyme equal equally equals equation
equations equipment equity error errors escape escrow especially essay essential
essentials establish estate estimate estimated etc ethical ethics evaluate
evaluation even evening event events eventually ever every everybody everyone
everything evidence evolution exact exactly exam examine example examples excellent
except exception exceptions exchange exchange-rate exchanging execute execution
executive exercise exercises exist existing exists expand expect expected expense
expenses expensive experience experienced experiences experiment expert expertise
experts explain explained explaining explanation explore export express expression
expressions extend extended extension extensive extent external extra extract
extrapolate extreme eye eyes face facilities facility fact factor factorize factors
factory facts fail failed fails failure fair fairly fall falls false familiar
families family famous fan fantasy far farm farmer farmers fashion fast faster fat
fault favor favorite feature features federal fee feed feedback feel feeling fees
feet felt fetch few fiber fibre fiction field fields fifteen fifth fifty fight
figure file files fill filling film films filter final finalize finally finance
finances financial find finding finds fine finish finished fire firm first fish fit
fitness five fix fixed flag flat flexible flight flights flip float floor floss
flossing flow flower flowers fluid fly focus focused folder folders folks follow
followed following follows font food foods foot football for force forces forecast
foreign forest forever forex forget forgot fork form formal format formats formatted
formatting former forms formula formulas forth fortune forty forum forward found
foundation four fourth fraction fragment frame framework frameworks fraud free
freedom freelance freeze french frequency frequent frequently fresh fridge friend
friendly friends from front fruit fuel full fully fun function functional functions
fund funding funds funny furniture further furthermore future fx gain galaxy gallery
game games gaming gap garage garden gas gate gather gave general generally generate
generated generates generating generation generator generic gentle get gets getting
gift girl give given gives giving glad glass global go goal goals goes going gold
gone good goods google got government governor grab grade gradient grain grammar
grand graph graphic graphics graphs gravity gray great greater green greet greeting
greetings grid grocery ground group groups grow growing growth guarantee guess guest
guests guidance guide guideline guidelines guides guitar guy guys gym hair half hall
hand handbook handle handling hands happen happened happening happens happy hard
hardware has hash hasn't hate have haven't having he head header heading headings
health healthcare healthy hear heat heavy height held hello help helpful helping
helps hence her here heritage hero hey hi hidden hide high higher highest highlight
highlights highly hill him himself hint hire his historical history hit hiya hmm
hobby hola hold holder holding holiday holidays home homepage homes homework honest
hope horror horse host hosting hot hotel hotels hour hourly hours house household
houses housing how how's however html huge human humans humor hundred hungry hunt
hurt hybrid hydrogen hypothesis i i'd i'll i'm i've iban ice icon id idea ideal
ideas identical identification identified identify identity if ignore illustrate im
image images imagine immediate immediately impact impacts implement implementation
implemented implication implications implicit import importance important
importantly imported impossible improve improved improvement improvements in inbox
incident include included includes including income incoming incorporate incorrect
increase increased increasing indeed independent index indicate indicator individual
individuals industrial industries industry infer inflation influence info inform
information infrastructure ingredient ingredients initial initially initiative inner
innovation innovative input inputs inquiry insert inside insight insights inspect
inspiration install installation installed instance instances instant instead
institute institution instruct instruction instructions instrument insurance integer
integers integral integrate integrated integration intelligence intend intent
intention interact interaction interactive interest interested interesting interests
interface interim interior intermediate internal international internet interpret
interval interview interviews into introduce introduction invalid inventory invest
investigate investing investment investments investor investors invitation invite
invoice invoices involve involved involves iron is island isn't isnt issue issues it
it's item items its itself ive job jobs join joint joke jokes journal journey judge
jump junior just justify keep keeping keeps kept kernel key keyboard keys keyword
keywords kid kids kill kind kindly kinds king kitchen knew know knowing knowledge
known label labels labor lack lake land landing landlord landscape language
languages laptop large larger largest laser last late later latest laugh launch law
laws lawyer lay layer layers layout lead leader leaders leadership leading leads
leaf leaflet leaflets league lean learn learned learning lease least leave leaves
leaving lecture led ledger left leg legal legend length lens less lesson lessons let
let's lets letter letters level levels leverage liability library license licensing
lie life lifestyle lift light lights like likely limit limitations limited limits
line linear lines link linked links lipid list listed listen listening listing lists
literally literary literature little live lives living load loan loans local located
location locations lock log logic logical login logo lol long longer look looking
looks loop loops lose loss lost lot lots love low lower lowest luck lunch lyrics
ma'am machine machines madam made magazine magic magnesium mail main mainly maintain
maintenance major majority make maker makes making male mall man manage managed
management manager managers managing manner manual manually manufacture manufacturer
manufacturing many map maps march margin mark market marketing markets marriage
married mass master match matches matching material materials math mathematical
mathematics maths matrix matter matters maximize maximum may maybe me meal meals
mean meaning means meant meanwhile measure measured measurement measures measuring
meat mechanical mechanics mechanism media medical medicine medieval medium meet
meeting meetings member members membership memo memory men mental mention mentioned
menu merchant merchants merge mess message messages met metal method methodology
methods metric metrics middle might mile miles military milk million mind mine
mineral minerals minimal minimize minimum minor minute minutes mirror missing
mission mistake mistakes mix mixed mixture mobile mode model modeling models
moderate modern modify module modules molecule molecules moment money monitor month
monthly months mood moon moral more moreover morning mortgage most mostly mother
motion motor mountain mouse mouth move moved movement movements movie movies moving
much multi multiple multiply museum music musical must mutual my myself mystery myth
name named names narrate narrative nation national native natural nature near nearby
nearest nearly necessary need needed needs negative negotiate neither nested net
network networks neutron never nevertheless new newest news newsletter next nice
night nine nitrogen no nobody node nodes noise non none nope nor normal normally
north northern not note notebook notes nothing notice notification novel now nuclear
number numbers numerical object objective objectives objects observe obtain obvious
obviously occur ocean odd of off offer offered offering offers office officer
official offline often oh oil ok okay old older on once one ones online only onto
open opened opening openings operate operating operation operations operator opinion
opportunities opportunity oppose opposite optimal optimization optimize option
optional options or oral orange order ordered ordering orders ordinary organic
organization organizations organize organized original originally other others
otherwise ought our ours ourselves out outcome outcomes outdoor outline output
outputs outside over overall overcome overdraft overview own owned owner owners
ownership oxygen pace pack package packages page pages paid paint painting pair
pairs panel paper papers paragraph paragraphs parallel parameter parameters
paraphrase parent parents park parking part participant participants participate
particular particularly parties partner partners partnership parts party pass
passage passed passenger passengers passing passive passport password passwords past
paste path patient patients pattern patterns pause pay payable payed paying payment
payments payroll peace peer pen penalty pending people per percent percentage
perfect perform performance performed perhaps period permanent permission
permissions person personal personality perspective phase phenomenon philosophy
phishing phone phones photo photography photon photos phrase phrases physical
physically physics piano pick picture pictures piece pieces pin pipeline pizza place
placed places plain plan plane planet planets planned planning plans plant plants
plastic plate platform platforms play player players playing playlist please plot
pls plug plus poem poems poetry point pointer points policies policy political
politics pool poor pop popular population port portfolio portion position positive
possibility possible possibly post posted poster posts potassium potential power
powerful practical practice practices pre precise predict prefer preferably
preferred preparation prepare prepared preparing presence present presentation
presentations presented president press pressure pretend pretty prevent prevention
preview previous previously price prices pricing primarily primary prime principal
principle principles print printer prior priority prison privacy private pro
probability probably problem problems procedure proceed process processed processes
processing processor produce produced producer product production productive
productivity products profession professional professor profile profit profits
program programme programmer programming programs progress project projects promise
promote promotion prompt prompts proof proper properly properties property
proportion proposal proposals propose pros protect protection protein proteins
protocol protocols proton prove provide provided provider providers provides
providing ps psychology public publication publish published publisher pull purchase
purchased purchases pure purpose purposes push put putting puzzle python qualified
qualify qualitative quality quantitative quantity quantum quarter quarterly queries
query question questions queue quick quickly quiet quit quite quiz quote quotes race
radio rain raise random randomly range ranges rank ranking rapid rare rarely rate
rates rather rating ratings ratio raw reach reached react read reader readers
readily reading ready real realistic reality realize really reason reasonable
reasoning reasons rebate recall recap receipt receipts receivable receive received
receiving recent recently recipe recipes recipient recognition recommend
recommendation recommendations recommended record recorded recording records recover
recovery recruit rectangle recursive recycle red redirect reduce reduced reducing
reduction refactor refer reference references referral refinance reflect refund
refunds refuse regard regarding regardless regards region regional register
registered registration regression regular regularly regulation regulations
regulatory reject rejected relate related relation relations relationship
relationships relative relatively release released relevant reliable relief rely
remain remaining remember remind reminder remote remove removed removing renaissance
rename rent rental repair repeat repeated rephrase replace replaced replacement
reply report reported reporting reports represent representation representative
represents reproduce request requested requests require required requirement
requirements requires research researcher researchers reservation reserve resolution
resolve resource resources respect respond response responses responsibilities
responsibility responsible rest restaurant restaurants restore restrict restricted
restriction restrictions result resulting results resume retail retain retire
retirement retry return returned returning returns reveal revenue reverse review
reviews revise revision revolution reward rewards reword rewrite rhyme rice rich
ride right rights ring rise rising risk risks river road robot robots robust rock
role roleplay roles roll roman romance romantic room rooms root roots rotate rough
roughly round route routes routine row rows rule rules run running runs rural safe
safely safety said salad salary sale sales salt same sample samples sand
satisfaction satisfy sauce save saved saving savings saw say saying says scalable
scale scan scenario scenarios scene scenes schedule scheduled schema scholar school
schools science sciences scientific scientist scientists scope score scores screen
script scripts scroll sea search searching season seat second secondly seconds
secret section sections sector secure security see seeing seek seem seems seen
segment select selected selection self sell seller selling semantic send sending
senior sense sent sentence sentences sentiment separate sequence sequences series
serious serve served server servers serves service services serving session set sets
setting settings settle setup seven several severe shall shape share shared shares
sharing sharp she sheet shell shift ship shipping shirt shoes shoot shop shopping
short shot should shouldn't show showed showing shown shows shut side sides sign
signal signed significance significant significantly signs similar similarly simple
simpler simplify simply simulate simulation simultaneous since sincerely sing
singing single sir sister sit site sites situation situations six size sizes sketch
skill skills skin skip sky sleep slide slides slight slightly slow slowly small
smaller smallest smart smartphone smooth snack snow so soap soccer social society
sodium soft software soil solar sold solid solution solutions solve solved solving
some somebody somehow someone something sometimes somewhat somewhere son song songs
soon sorry sort sorted sorting sound sounds soup source sources south southern space
spaces speak speaker speaking spec special specialist species specific specifically
specification specify speech speed spell spend spending spent split spoken sport
sports spread spreadsheet spring square stack staff stage stages stakeholder
stakeholders stand standard standards standing standing-order star stars start
started starter starting starts state stated statement statements states static
station statistic statistical statistics stats status stay steal steel step steps
stick sticky still stock stocks stop stopped storage store stored stores stories
story straight strange strategic strategies strategy stream streaming street
strength strengths stress strict string strings strong structural structure
structured structures struggle stuck student students studies studio study stuff
style styles subject subjects submit subscribe subscription subsequent subset
substance substitute success successful successfully such sudden suddenly suffer
sugar suggest suggested suggestion suggestions suit suitable sum summaries summarise
summarize summary summer sun sunlight super supermarket supplier suppliers supply
support supported supporting suppose supposed sure surface surprise surprising
survey surveys survive sustainability sustainable swap sweet swift swim switch
symbol symbols symptom symptoms syntax synthesis system systematic systems table
tables tabulate tag tags tail take taken takes taking tale talk talking tank tap
target targets task tasks taste tax taxes taxi tea teach teacher teachers teaching
team teams tech technical technique techniques technologies technology teeth
telephone tell telling temperature template templates temporary ten tenant tenants
tend tennis term terminal terms test tested testing tests text textbook texts than
thank thanks that that's the theater their theirs them theme themes themselves then
theorem theoretical theories theory therapy there there's therefore these thesis
they they're thing things think thinking third this thoroughly those though thought
thoughts thousand thousands thread threat threats three threshold through throughout
throw thus thx ticket tickets tie tight till time timeline times timing tiny tip
tips tire tired title titles to today together toilet tokenize told tomorrow tone
tonight too took tool tools tooth toothpaste top top-up topic topics topping topup
total totally touch tough tour tourism tourist toward towards towel town toy trace
track tracking trade traded trading tradition traditional traffic train trained
training transaction transactions transcribe transfer transferred transferring
transfers transform transformation transforms transition translate translated
translation transparent transport transportation trap travel traveler traveling
travels treat treatment tree trees trend trends triage trial triangle trick tried
tries trigger trip trips trouble truck true truly trust truth try trying tune turn
turned turning turns tutor tutorial tv twelve twenty twice twist two type types
typical typically ugly ultimate ultimately um unable under undergraduate underlying
understand understanding underwriting unfortunately uniform unique unit units
universal universe university unknown unless unlike unlimited unlock unscramble
until unusual up update updated updates upgrade upload upon upper upset urban urgent
urgently us usage use used useful useless user users uses using usual usually
utility utilize vacation valid validate validation valuable value values variable
variables variance variant variation variations variety various vary vast vector
vegan vegetable vegetables vegetarian vehicle vehicles vendor vendors verb
verification verify verifying version versions versus vertical very via video videos
view viewed viewpoint views villain virtual virus viruses visible vision visit
visual visualization visualize vital vitamin vitamins vocabulary voice volume
voluntary volunteer volunteers vote vs wait waiting waiver walk wall wallet want
wanted wants war ware warehouse warm warning warranty was wash wasn't waste watch
water wave way ways we we're weak wealth weapon wear weather web webpage website
websites wedding week weekend weekly weeks weight weird welcome well went were
weren't west western what what's whatever whats wheel when whenever where where's
whereas wherever whether which while white who who's whoever whole whom whose why
wide widely wife wild will win wind window windows wine winner winning winter wire
wireless wisdom wise wish with withdraw withdrawal withdrawals within without woman
women won't wonder wonderful wondering wood word words work worked worker workers
workflow workforce working workplace works workshop world worlds worldwide worried
worry worse worst worth would wouldn't wow write writer writers writing written
wrong wrote yard yeah year yearly years yellow yep yes yesterday yet yoga you you'll
you're your yours yourself youth zero zinc zone zoo
""")

# Days, languages, countries, states, large cities, products, sciences. Not the
# famous places that are given names too: Jordan, Austin, Charlotte, Madison.
# In capitals never a person, however sure a model is.
ACRONYMS = words("""
ami api aws cdn cli cpu dns ebs ec2 ecr ecs efs eks elb emr gcp gke gpu iam ide json
jwt k8s kms llm nat nlp oidc orm pdf rds rpc s3 saml sdk sns sql sqs ssd ssh ssl ssm
tcp tls udp url usb vm vpc vpn waf xml yaml
""")
PROPER = words("""
aks ebs ec2 ecr ecs efs eks elb emr gke iam kms rds s3 sns sqs ssm vpc waf toml grpc
jwt oauth oidc saml ldap imap dhcp mtls nat bgp etcd helm istio envoy haproxy caddy
traefik celery zookeeper mariadb duckdb latex vim emacs tmux zsh nuxt gatsby tailwind
asana miro zendesk hubspot twilio okta auth0 datadog grafana prometheus splunk elk
a access ad adhd adidas adobe afghan afghanistan africa african afrikaans agent
agile ai aids airbnb airbus airflow alabama alaska albania albanian alberta alexa
algeria alps am amazon amd amendment america american americans americas amex
amsterdam anaconda android angeles angular ansible antarctica anthropic apache api
apis apollo apple apr april apy arab arabic arabs arctic argentina argentine
argentinian aristotle arizona arkansas armenia asap asia asian assistant athens
atlanta atlantic atm attn auckland audi aug august australia australian austria
austrian autodesk aws azerbaijan azure b2b b2c ba bach bahamas bahrain balkans
baltimore bangalore bangkok bangladesh bangladeshi barbados barbie barcelona bard
barista baroque bash batman bayes bayesian bc bce beagle beethoven beijing belarus
belgian belgium bengal bengali berlin bernoulli bert best bible bic bing birmingham
bitbucket bitcoin blockchain bluetooth bmi bmw boeing bohr bolivia bollinger
bolognese boolean bordeaux bosnia bosnian boston bot botswana brave brazil brazilian
brexit brisbane bristol britain british broadway brooklyn brussels bsc bucharest
budapest buddha buddhism buddhist bulgaria bulgarian byzantine caesar cairo
california cambodia cambridge cameroon canada canadian cantonese canva caribbean
carolina cassandra catholic cd cdc ce celsius celtic ceo cfo champagne chatbot
chatgpt cheddar cheers chennai chicago chile chilean china chinese chopin christian
christianity christians christmas chrome cia cisco civil-war cleopatra cleveland
clojure cloudflare cms co cobol coca cola colab cold-war colombia colombian colorado
conda confluence congo congress connecticut constitution coo copenhagen copernicus
copilot corp cortana costco covid covid-19 cpa cpu crm croatia croatian css csv ct
cto cuba cuban curie customer cypress cyprus czech czechia dakota dallas danish
dante danube darwin darwinian databricks dc dear debian dec december delaware delhi
dell democrat democrats denmark denver descartes detroit diego dijkstra dijon
discord disney diwali diy django dmv dna dns docker doha doppler dow dr dubai dublin
duckduckgo dutch dvd e.g. earl earth easter eastern ebola ecg ecuador edge edinburgh
egypt egyptian eid einstein elasticsearch elixir england english enlightenment epa
erlang erp esa esperanto est estonia estonian eta etc etf etfs ethereum ethiopia
ethiopian eu euclid euclidean euler europe european everest excel express facebook
fahrenheit faq faraday farsi fbi fda fe feb february fed fedora ferrari fibonacci
fifa figma filipino finland finnish firebase firefox flask florida ford formula
fortnite fortran fourier france francisco frankfurt french freud freudian fri friday
ftc ftp ftse fwd fyi galileo gandhi gantt gaussian gcp gdpr gemini geneva german
germanic germany ghana ghanaian git github gitlab glasgow gmail gmbh gmt god golang
google gothic gouda gps gpt gpu gradle grammy gras greece greek greeks greetings
guatemala gujarati hadoop haiti halloween hamburg hamlet hampshire hanoi hanukkah
harry-potter harvard haskell hawaii hdmi hebrew heisenberg hello helsinki heroku
hertz hey hi hilbert himalayas hindi hindu hinduism hipaa hiv hive hogwarts
hollywood holocaust homer honda honduras hong hotmail houston hr html http https
huawei hubble huffman huggingface human hungarian hungary i.e. iban ibm iceland
icelandic id idaho ikea iliad illinois illustrator imf inc india indian indiana
indonesia indonesian instagram intel interviewer ios iot iowa ip ipad iphone ira
iran iranian iraq iraqi ireland irish irs islam islamic iso israel israeli istanbul
it italian italy ivy jakarta jamaica jan january japan japanese java javascript jedi
jenkins jersey jest jesus jewish jira johannesburg joule json judaism jul julia july
jun june junit jupiter jupyter kafka kanban kansas kant kantian karachi kazakhstan
kelvin kentucky kenya kenyan kepler keras keynes keynesian kiev kindle kippur
kolkata kong koran korea korean kotlin kpi kpis kubernetes kuwait kyiv kyoto la
labour labrador lagos laos laplace laravel las latin latvia latvian lean lebanon
lego lent liberia libya likert linkedin linux lisbon lithuania lithuanian liverpool
llama llc llm london los louisiana ltd lua luxembourg ma macbeth macbook macos
madrid magento maine malay malaysia mali malta manchester mandarin manhattan manila
mar marathi march mardi margherita mario markov mars marvel marx marxist maryland
maslow massachusetts mastercard matlab maven maxwell may mba mcdonald mcdonalds md
medicaid medicare medieval mediterranean medium melbourne memphis mendel mendelian
mercedes mercury mesopotamia meta mexican mexico miami michigan microsoft
middle-eastern midwest milan milky minecraft minneapolis minnesota miss mississippi
missouri mit ml mlb model moldova mon monday monet mongodb mongolia montana montreal
moon moore moroccan morocco moscow mozambique mozart mozzarella mr mri mrs ms msc
mumbai munich murphy muslim muslims mvp myanmar mysql nairobi namibia naples
napoleon napoleonic nasa nascar nasdaq nash nashville nato nba nda nebraska nepal
neptune netflix netherlands netlify nevada new-year newton nfl nginx nhl nhs
nicaragua nietzsche niger nigeria nigerian nih nike nile nintendo nist nlp nobel
node nodejs nokia nordic northern norway norwegian notion nov november npm nsa numpy
nvidia nyc nyse occam oceania oct october odyssey ohio ohm ok okay oklahoma olympic
olympics oman ontario opec openai opencv opera oracle oregon orlando orthodox osaka
oscar oscars osha oslo ottawa ottoman outlook oxford p.s. pacific pakistan pakistani
palestine palestinian panama pandas paraguay pareto paris parliament parmesan pascal
passover paypal pc pci pdf pearson pennsylvania pepsi perl persian peru peruvian phd
philadelphia philippines phoenix photoshop php picasso pin pip pittsburgh planck
plato platonic playstation plc pluto pm poc poisson pokemon poland polish poodle
porter portland porto portugal portuguese postgres postgresql powerpoint powershell
prague princeton prof protestant pst ptsd pulitzer punjabi pytest pythagoras
pythagorean python pytorch q q&a qatar quebec quora quran rabbitmq rails ram ramadan
re react reddit redis reformation regards renaissance republican republicans
respectfully revolut rfp rfq riemann riyadh rn rna roblox roi roman romania romanian
romans rome rotterdam ruby russia russian rust rwanda saas safari sahara salesforce
samsung san sanskrit santa sap sat saturday saturn saudi scala scandinavian
schrodinger scipy scotland scottish scrum sdk seattle sec selenium senate senegal
seo seoul sep sept september serbia serbian sf shakespeare shakespearean shanghai
sharepoint shopify siamese silicon sincerely singapore siri sklearn sla slack slavic
slovak slovakia slovenia slovenian smtp snowflake soc socrates socratic somalia sony
southern sox spacex spain spanish spark spiderman spotify spring sql sqlite ssd ssh
ssl stackoverflow stanford star-wars starbucks std stockholm stripe substack sudan
sun sunday supabase superbowl superman supreme svelte swahili sweden swedish swift
swiss switzerland swot sydney syria system tabasco tableau tagalog taipei taiwan
tamil tanzania target tcp teams telegram telugu tennessee tensorflow terraform tesla
texas thai thailand thames thanks thanksgiving thu thurs thursday tiktok tls tokyo
tolstoy tomcat torah toronto tory toyota transformer transformers trello tue tues
tuesday tunisia turing turkey turkish tv twitch twitter typescript uae uber ubuntu
udp uefa uganda uk ukraine ukrainian un unesco unicef unix uranus urdu url urls
uruguay usa usb uscis user utah utc uzbekistan valentine valentines vancouver vegas
venezuela venezuelan venice venmo venus vercel vermont victorian vienna vietnam
vietnamese visa vite volkswagen vpn vs vue wales walmart warsaw washington watt way
webpack wed wednesday welsh western wharton whatsapp who wifi wikipedia wimbledon
windows wisconsin worcestershire word wordpress ww1 ww2 wwi wwii wyoming xbox xiaomi
xmas xml yahoo yale yaml yarn yemen yiddish yom york yours youtube zambia zelda
zelle zimbabwe zoom zulu zurich
""")


GIVEN = words("""
aaron abby abdul abdullah abigail adam adrian adriana ahmad ahmed aidan aiden aisha
akira alan albert alberto alejandra alejandro alex alexander alexandra alexis alfred
alfredo ali alice alicia alison allison alvarez amanda amelia amina amir amy ana
anastasia anderson andre andrea andreas andres andrew andy angel angela angelica
angelina anita ann anna anne annie anthony antonia antonio anya arjun arthur arturo
asha ashley audrey bailey barbara beatrice becker becky ben benjamin bennett bernard
bernice beth bethany betty beverly bianca bianchi billy bob bobby brad bradley
brandon brenda brendan brian brianna bridget brittany bruce bryan caitlin calvin
cameron camila camille campbell candice carl carla carlos carmen caroline carolyn
carrie castillo catherine cathy cecilia cesar charlene charles charlie chavez chen
cheng cheryl chloe chris christian christina christine christopher cindy claire
clara clarence claudia colin collins connie connor constance corey courtney cox
craig cruz curtis cynthia daniel daniela danielle danny darius darlene darren dave
david davis deborah debra deepak denise dennis derek diana diane diaz diego dmitri
dolores dominic donald donna doris dorothy doug douglas dubois dylan ed eddie edgar
edith eduardo edward edwards edwin eileen elaine eleanor elena eli elias elijah
elizabeth ella ellen ellie emily emma enrique eric erica erik erika erin ernest
esposito esteban esther ethan eugene eva evan evans evelyn fatima felicia felipe
felix fernanda fernando ferrari fiona fischer florence flores foster frances
francesca francis francisco franklin fred frederick gabriel gabriela gabrielle
garcia gary geoffrey george gerald gerardo gina giovanni gladys glenn gloria gomez
gonzalez gonzalo gordon greg gregory guadalupe guillermo gustavo gutierrez hannah
hans harold harriet harris hassan heather hector heidi helen helena henry herbert
hernandez hiroshi hoffmann howard huang hughes hugo hussein ian ibrahim ida igor
ingrid irene isaac isabel isabella isaiah ivan jackie jackson jacob jacqueline jaime
jake jamal james jamie jan jane janet janice jared jasmine jason javier jay jayden
jean jeff jeffrey jenna jennifer jenny jeremy jerome jerry jesse jessica jill jim
jimenez jimmy jin joan joanna joanne jodi joe joel joey johan john johnny johnson
jon jonathan jones jorge jose joseph josh joshua joyce juan juanita judith judy
julia julian juliana julie julio justin kaitlyn karen karina karl kate katherine
kathleen kathryn kathy katie katrina kayla keisha keith kelly kelsey ken kenji
kenneth kevin khalid kim kimberly kirk klaus kowalski kristen kristin kristina kumar
kurt kyle lakisha lamar larry latoya laura lauren laurie lawrence leah lee lefebvre
leila lena leo leon leonard leroy leslie leticia lewis liam linda lindsay lindsey
lisa liu logan lois lola lopez lorenzo lori lorraine louis louise lucas lucia lucy
luis luke luz lydia lynn madeline maggie malcolm malik manuel marc marcia marco
marcus margaret maria mariah mariam mariana marie marilyn mario marisol marjorie
marlene marsha marta martha martin martinez marvin mary mateo mathew matt matthew
maureen maurice maya megan mehmet mei melanie melinda melissa mendoza mercedes
meredith meyer mia michael michaela michele michelle miguel mike mildred miller min
ming miranda miriam mitchell mohamed mohammad mohammed molly monica monique moore
morales moreau morgan morris mueller muhammad murphy mustafa myers müller nadia
nancy naomi natalia natalie natasha nathan nathaniel neil nelson nguyen nicholas
nicole nikhil nina noah noel nora norma norman novak o'brien o'connor olga oliver
olivia omar ortiz oscar pablo paige pam pamela patel patricia patrick paul paula
pauline pedro peggy perez pete peter peterson phil philip phillip phillips phyllis
pierre pilar priya rachel rafael rahul rajesh ralph ramirez ramon ramos randy raquel
rashid raul raymond rebecca regina reginald renata rene renee reyes ricardo richard
richardson rick ricky riley rita rivera robert roberto roberts robinson rodney
rodrigo rodriguez roger rogers roland ron ronald rosa rosalie rosemary ross rossi
roxanne ruben ruiz russell russo ruth ryan sabrina sally salvador sam samantha
samuel sanchez sandeep sanders sandra sanjay santiago sara sarah sasha sato saul
schmidt schneider schulz scott sean sebastian selena sergei sergio seth shannon
sharon shaun shawn sheila shelby shirley sierra silvia simon singh smith sofia sonia
sonya sophia sophie stacey stacy stanley stefan stella stephanie stephen steve
steven stewart stuart sullivan sunil susan susie suzanne suzuki svetlana sylvia
tamara tammy tanaka tanya tara tariq taylor ted teresa terrence terry thelma
theodore theresa thomas thompson tiffany tim timothy tina todd tom tommy toni tony
torres tracy travis trevor turner tyler tyrone valentina valerie vanessa vera
veronica vicki victor victoria vijay vincent virginia vivian vladimir wagner walter
wanda wang ward warren watanabe watson wayne weber wei wendy wesley whitney wilfred
william williams willie wilson wu xavier xiao yamamoto yan yang yolanda yosef yuki
yusuf yvonne zachary zhang zhao zhou zoe
abdulrahman abebe abena abhishek adaeze adebayo adetokunbo aditi aditya adunni agnieszka
ahmet aiko aileen aishwarya aiyana ajay akhil akihiro akinyi akosua alejandrina
aleksandr aleksandra aleksei alessandra alessandro alessia alexandre alexei alisha
aliyah alondra amadou amara aminata amit amita amrita anand ananya anastasios andrei
andrzej aneesha angelos anika anil anjali ankit annika anoushka anselm anushka aparna
apinya araceli arash aravind archana arianna arif arnav arun arvind ashok ashwin asif
aslan astrid atsushi aurelio avery avraham ayaan ayesha aylin ayumi azadeh babak
babatunde bashir beatriz behrouz belen benedikt bengt bhavna bilal birgit birgitta bjorn
blessing bogdan bogdana boris bozena branislav bronwyn caitriona camilo carlotta cecile
celine chandra charlize chiara chidi chika chinedu chinonso chioma chiyo christoph
christophe cillian claudine clementine consuelo cornelius cosmin cristiano cristina
csaba dagmar daichi daisuke damian danica danika dariusz darnell dawit deandre debbie
delphine demetrius denisa deshawn devika dhruv dilip dimitri dimitrios dimitris divya
djamila dorota dragan dragana duc eamon ebony edoardo eduard eero efosa eitan ekaterina
eleni eleonora elif eliska eliza elke elsa elsie emeka emil emilia emiliano emilie
emilio emre enzo eoin ernesto esmeralda estefania etienne eun eunice evangelia evgeny
ewa fabian fabio fabrizio faisal farah farhad farida fatou fatoumata federica federico
feng filip filippo finn fiorella francois francoise franz freya friedrich gaurav geert
gemma gennady georgina gerhard ghislaine giancarlo gianluca gideon giorgos gisela giulia
giulio giuseppe graciela graham greta grigori grzegorz guillaume gunnar gunther gurpreet
hadiya hakan hamid hana haruki haruto hasan heidrun heike heinrich helene helga hideo
hiroko hitomi hrishikesh huda hye-jin ibrahima ichiro ifeoma ignacio igwe ikram ilaria
ileana ilya imani imran indira ines inga ingeborg ioana ioannis irfan irina isadora isha
ishaan ismail itzel iveta iwona jacek jacques jadwiga jakub jamila jana janelle jarek
jaroslav jasmin jaspreet javad jayesh jelena jerzy jesper ji-hoon ji-woo jia jiří
joachim joao joaquin joaquín jochen johanna johannes jolanta jordi josefa josefina jovan
jovana jozef juliane julien jun-ho jurgen justyna jyoti kaito kamal kamala kamil kamilah
karim karin karthik kasia katarina katarzyna katerina katharina katja kaveh kavita
kayode kazuki keiko keisuke kenta khadija khaled kiran kirsten klara konstantin
konstantinos krishna kristian kristof krisztina krzysztof kwabena kwame kyoko lakeisha
lakshmi lamine lars lasse latasha latisha laurent layla leandro leilani leonardo leonie
leopold leszek leyla liesel ljubica loic lorena lorenza lotte lubomir luca luciana
lucien ludmila ludovic luigi luiz lukas lukasz maarten maciej magda magdalena magnus
mahesh mahmoud maksim malgorzata malika mamadou manish manoj manuela marcel marcela
marcelo marcin marek margarita margit marguerite marija mariko marina marisa marius
marjan marketa marlon martina marwa maryam masako masashi massimo mateusz mathieu
mathilde matteo matthias mauricio maurizio maxime mayumi meera mehdi mehmood meihua
mercy mette mihai mikael mikhail mikko milena milica miloš min-jun minh mireille mirjam
miroslav misaki mitsuki mohan mohsen moises monika moritz mwangi nadezhda naeem nanako
naoki narayan nasrin natalya nazanin neha nelly ngozi nia nicolae nicolas nikita nikola
nikolai nikolaos nils nimisha ning nishant nitin njeri noemi noor noriko nour nuno
obinna octavio oksana oleksandr olena oluwaseun ondrej orhan oriol oskar osvaldo ottavia
oumar ozlem padma padraig paola paolo parisa parvati pascale patrice patricio patrik
patrizia pavel pawel pedram petra petros philippa philippe pia pieter pietro piotr pooja
prakash pranav prasad pratik preeti priyanka qasim quentin quyen rabia radek radhika
rafal raffaele ragnar raheem rajiv ralf ramesh rania ravi ravindra reiko reinhard reza
rhiannon rikke ritu roberta rodolfo rogelio rohan rohit roisin romain ronan roshni
rossana rowena roza rukmini ruslan ruxandra ryosuke saanvi sabine sadia saeed sakura
salim salma samir sandeepa sandor sanjana sanna santosh saoirse satoshi saurabh
sebastien seda seo-yeon sergey serhiy severine shabnam shahid shakira shalini shanice
sharmila sheng shinji shirin shiro shivani shoshana shreya shun siddharth sigrid silke
silvio simone sinead siobhan slobodan sneha snezana sofie solene solveig soren stavros
stefania stefano steffen stelios subhash sudha suleiman sunita suresh susana sushma
suzana sven swati swetha szymon tadeusz takashi takeshi tamika tanisha tanvi tarun
tatiana tatyana tejas temitope teodor tesfaye thabo thandiwe theodora thi thiago thierry
tobias tomas tomasz tomoko torsten tunde tyrell uchenna udo ulrich ulrike umar umut
ursula usha usman vaishnavi valeria valerio vanja vasile vasiliki vasily veena venkat
venkatesh vesna vidya vikram viktor viktoria vinay vincenzo vinod vishal vitaly vivek
vladislav volker wanjiru wasim wei-ling wenjing wilhelm wioletta witold wojciech
wolfgang xiaoming xiaoyu ximena xin-yi yael yaroslav yasmin yasmine yasuko yesenia
yetunde yevgeny yiannis yohannes yoko yosuke youssef yuka yuko yulia yuliya yumi yuri
yuto yves zainab zarina zbigniew zdenek zehra zeinab zeynep zhen zlatan zofia zoltan
zsofia zuzana
""")

# As often a word as a name: harmless at the head of a sentence.
AMBIGUOUS = words("""
amber april art autumn baker banks bell bill bishop black bond brooks brown bush
carol carter chase chuck cliff cook cooper crystal daisy dale dawn dean don drew
duke earl eve faith field fields ford fox frank gail gene glen grace grant gray
green guy hall harry hill holly hope hunter iris ivy jack jade joy june king lane
lily little long love mark marsh mason max miles nick norm olive page park parker
pat pearl penny porter power powers price ray reed rice rich rivers rob robin rose
ruby sandy short smith stone sue summer tad van violet wade white will wolf wood
woods young
""")

# Names that lower-case text uses as words, cities or abbreviations.
NOT_IN_LOWER_CASE = words("""
ali amelia ana andre andy angel ann antonio art avery bailey barbara becker belen
bernard blessing bob cameron carmen charles charlotte christian colin collins connie
corey cox cruz diego dolores domingo ebony ed elena eli elif emil eva ferrari finn
fischer florence flores foster frances francis francisco franklin gary gene george gina
gloria graham greta guadalupe ida ines ivan jackson jan jasmine jay jean jerry jin joan
joe jose joyce juan karim kelly ken kim kirk lamar larry lee lena leo leon lincoln logan
loic lola lotte louis luca luz lynn magnus mar marc marin mario mei mercedes mercy mia
mihai miller min ming miranda mitchell moore morgan morris murphy nelson newton nina
ning noel nora norma nour oscar paige pam paul pete phil phillips pia pilar regina rene
reyes rick riley rita rivera roberta rosa rosemary ross russell sakura san santiago saul
seda seth shannon shelby shun sierra sonia st. stella sven taylor thi tim todd tony
tracy trevor turner tyler umar usha vera victoria virginia wagner wanda ward warren
washington wayne weber wei wesley whitney will wu xavier yan young zhen
""")


MIN_NAME_CHARS = 2
# No name ends so, of what looks like a word that is not listed.
ENDINGS = tuple(
    words("""
tion tions sion sions ment ments ness ity ities ism isms ics logy logical graphy
graphic metry sis ware hood ship ships ology ological ically izing ising ized ised
ized ization able ible ably ibly less ously ously fully ative atively
""")
)
_INFLECTIONS = (
    ("ies", "y"),
    ("ied", "y"),
    ("es", ""),
    ("s", ""),
    ("ing", ""),
    ("ing", "e"),
    ("ed", ""),
    ("ed", "e"),
    ("er", ""),
    ("er", "e"),
    ("ers", ""),
    ("ers", "e"),
    ("ly", ""),
    ("est", ""),
    ("y", ""),
    ("al", ""),
    ("n't", ""),
    ("d", ""),
    ("r", ""),
)
_LISTED = COMMON | PROPER | AMBIGUOUS
_MARKS = re.compile(r"['\-]")
_TOKEN = re.compile(r"\w+")


def bag(text: str) -> frozenset[str]:
    """Return the words of a text in lower case, without marks.

    A rule that begins with a word need not run where that word is not.
    """
    return frozenset(_TOKEN.findall(text.lower()))


def lowered(text: str) -> str:
    """Return a text in lower case, of the same length: places stay places."""
    plain = text.lower()
    if len(plain) == len(text):
        return plain
    return "".join(low if len(low := char.lower()) == 1 else char for char in text)


def bare(word: str) -> str:
    """Return a word in lower case, without a possessive ending."""
    plain = word.lower().replace("\u2019", "'")
    return plain.removesuffix("'s").removesuffix("'")


def is_listed(plain: str) -> bool:
    """Tell whether a bare word is an ordinary one, exactly as listed."""
    return plain in _LISTED


def is_known(word: str) -> bool:
    """Tell whether a word is a listed one, perhaps inflected, and no given name."""
    plain = bare(word)
    if plain in GIVEN:
        return False
    if plain in _LISTED:
        return True
    if "-" in plain or "'" in plain:
        return all(
            part in _LISTED or len(part) < MIN_NAME_CHARS
            for part in _MARKS.split(plain)
        )
    return any(
        base in _LISTED
        for end, new in _INFLECTIONS
        if plain.endswith(end)
        and len(base := plain.removesuffix(end) + new) > MIN_NAME_CHARS
    )
