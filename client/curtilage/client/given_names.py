"""Given names and surnames that are common enough to know, and where they trip.

No gazetteer: some hundred names of many origins, written for this project, so
that the commonest are found in lower-case text and at the head of a sentence.
What is not listed is found by its capital, or not at all.
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
ali amelia ana andre andy angel ann antonio art bailey barbara becker bernard bob
cameron carmen charles charlotte christian colin collins connie corey cox cruz diego
dolores domingo ed elena eli eva ferrari fischer florence flores foster frances
francis francisco franklin gary gene george gina gloria guadalupe ida ivan jackson
jan jasmine jay jean jerry jin joan joe jose joyce juan kelly ken kim kirk lamar
larry lee lena leo leon lincoln logan lola louis luz lynn mar marc mario mei
mercedes mia miller min ming miranda mitchell moore morgan morris murphy nelson
newton nina noel nora norma oscar paige pam paul pete phil phillips pilar regina
rene reyes rick riley rita rivera rosa rosemary ross russell san santiago saul seth
shannon shelby sierra sonia st. stella taylor tim todd tony tracy trevor turner
tyler vera victoria virginia wagner wanda ward warren washington wayne weber wei
wesley whitney will wu xavier yan young
""")
