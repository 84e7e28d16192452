"""Given names and surnames that are common enough to know, and where they trip.

No gazetteer: some twelve hundred names of many origins, written for this project,
so that the commonest are found in lower-case text and at the head of a sentence.
What is not listed is found by its capital, by a model, or not at all.
"""

from curtilage.client.vocabulary import words

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
