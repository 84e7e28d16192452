"""Sentences with slots: what people type about people, and similar texts.

Slots: ``{full}``, ``{given}``, ``{family}``, ``{anyone}`` (PERSON), ``{handle}``
(its parts are PERSON), ``{city}``, ``{place}`` (LOCATION), ``{org}``
(ORGANIZATION), ``{address}``, ``{age}``, ``{date}``, ``{nrp}``, and ``{num}`` (a
number of no type). All are this project's own words.
"""

from typing import Final

ENTITY_SENTENCES: Final = tuple(
    line.replace("\\n", "\n")
    for line in """
Write a birthday card for {given}, who turns {num} on {date}
my name is {anyone}
My name is {full} and I live at {address}
i am {full} from {city}
Hi, this is {full} from {org}. Could you call me back?
Please forward this to {full} at {org} before {date}.
Draft an email to {anyone} about the delayed shipment
Reply to {given} and say that I can't make it on {date}
Dear {family},\\nthank you for your letter of {date}.\\nKind regards,\\n{full}
Dear {full},\\n\\nPlease find attached the invoice.\\n\\nBest,\\n{given}
Thanks,\\n{full}\\nSenior Analyst | {org}\\n{address}
Cheers\\n{given}
Best regards, {given} {family}
--\\n{full}\\n{org}
Sent from my phone\\n{given}
Patient {full}, DOB {date}, presents with chest pain.
Pt: {family}, {given}; DOB {date}; admitted {date} to {org}.
{full} is a {age} {nrp} woman seen at {org} on {date}
The patient, {full}, is a {age} man with a history of diabetes.
This {age} male complains of back pain
{age} female, {nrp}, nonsmoker
she is {age} and lives with her daughter {given} in {city}
my son {given} is {age} and won't sleep
my grandmother is {age}
He turned {num} and was born on {date} in {city}
born on {date} in {place}
DOB: {date}
date of birth {date}
I was born {date}
Was {full} born in {city} or in {city}?
Summarize the meeting between {full} and {full} at {org}
Attendees: {full}, {full}, {given}
{given}: are you there?\\n{given}: yes, just arrived in {city}
{given} said that {given} and {given} will not come
[{num}:{num}] {given}: lol\\n[{num}:{num}] {given}: see you
tell {given} i will be late
text {given} that dinner is at eight
call {anyone}
send a message to {anyone} saying happy birthday
remind me to call {given} tomorrow
what is {given}'s number
add {full} to my contacts
did {given} reply to my email
email from {anyone}
how old is {full}
who is {full}
when did {full} die
where does {full} live
book a table for {given} and me in {city}
Write a recommendation letter for my student {full}, who studied at {org}
Write a performance review for {full}. {given} missed {num} deadlines.
Rewrite this complaint about my neighbor {full} at {address}
My landlord {full} refuses to return the deposit
My boss {given} keeps asking for my location
My colleague {full} was promoted last week
my wife {given} and I moved to {place}
our daughter {given} starts at {org}
{full} v. {org}, filed on {date}
The plaintiff, {full}, resides at {address}
Witness statement of {full}, {age}, of {address}
I, {full}, residing at {address}, hereby appoint {full} as my attorney.
This agreement is made on {date} between {org} and {full}.
Ship it to {full}, {address}
My address is {address}
i live at {address}
We moved from {address} to {address}
Please change my billing address to {address}
The office of {org} is at {address}
Meet me at {address} at {num}
Send the replacement card to {address}, I am in {city} on business
The new tenant at {address} is {given}
Deliver to: {full}\\n{address}
Return address:\\n{full}\\n{address}
Is {city} in {place} or in {place}?
what is the weather in {city}
find flights from {city} to {place} on {date}
Best restaurants in {city}
I work for {org}
I used to work at {org} as a nurse
{org} hired {full} as chief executive
{org} announced that {full} will step down on {date}
Compare {org} and {org}
The {nrp} ambassador met {full} in {city}
She is {nrp} and moved to {place} in {date}
As a {nrp} living in {place}, I feel lonely
my parents are {nrp}
{full}, a {nrp} citizen, arrived on {date}
name,age,city\\n{full},{num},{city}\\n{full},{num},{city}
{{"name": "{full}", "city": "{city}", "age": {num}}}
{{"first_name": "{given}", "last_name": "{family}", "dob": "{date}"}}
{{'patient': '{full}', 'admitted': '{date}'}}
<author>{full}</author>
# Author: {full}
// written by {full}, {date}
/* Copyright {num} {full} */
@author {full}
Co-authored-by: {full}
git commit --author "{full}"
user = User(name="{full}", city="{city}")
INSERT INTO patients VALUES ('{full}', '{date}', '{city}');
SELECT * FROM users WHERE last_name = '{family}'
customers = ["{full}", "{full}", "{full}"]
print("Hello {given}")
mailto {handle} at work
my username is {handle}
login {handle} failed
From: {full}\\nTo: {full}\\nSubject: Re: schedule
CC {given} {family}
Translate: "{given} is my best friend."
Fix the grammar: me and {given} was going to {city}
Make this polite: {given} you never answer my mails
Explain to {given} why the sky is blue
a poem for my mother {given}
Write a story about {given}, a girl from {city}
Roast my friend {given}
Give me tips for a date with {given}
What does {given} mean by that?
Is {given} a common name?
Mr. {family} called about the invoice
Mrs {family} is allergic to penicillin
Dr. {full} at {org} prescribed it
Prof. {family} teaches at {org}
Ms. {family} will be in {city} on {date}
nurse {given} said to wait
officer {family} took my statement
I spoke with {given} in billing
your agent {given} was rude
per our call with {full} on {date}
As {given} mentioned, the deadline is {date}
{given} and {given} got married on {date} in {city}
{full} ({age})
{family} {given}, {city}
{given} {given} {given}
{full}
{given}
Ich heiße {full} und wohne in {city}
Je m'appelle {full}, j'habite à {city}
Me llamo {full} y vivo en {city}
Mi chiamo {full}
Mein Kollege {full} aus {city}
ask {given} if {given} knows {given}
hey its {given}
its me {given}
yo {given} whats up
{given} here
signed {full}
for {full} only
customer {full} account locked
Account holder: {full}
Name: {full}\\nAge: {age}\\nAddress: {address}
Full name {full}, date of birth {date}, nationality {nrp}
Next of kin: {full} (sister)
Emergency contact {full}
Referred by Dr {family}
Discharge summary for {full}, {date}
Mom's name is {given}, dad is {given}
the kids, {given} and {given}, are {age}
We interviewed {full}, {full} and {full} for the position
{full}'s salary is {num}
Why was {given} fired?
{given} is pregnant and told nobody
{given} owes me {num} dollars
{given} had {num} apples and gave {num} to {given}
Suppose {given} drives from {city} to {city}
The killer in the book is {full}
Quote by {full}
{full} won the match against {full}
Tickets for {full} in {city} on {date}
""".strip().splitlines()
)

PLAIN_SENTENCES: Final = tuple(
    """
Will you mark the page in March, or may I hope for a rose in June?
write a python function that reverses a list
What is the capital gains tax?
The bill was too high, can I dispute the charge?
how do i reset my password
Explain the art of war in simple words
What is a mark-to-market valuation
Can you grant access to the drive?
how do I chase an unpaid invoice
Give me a summary of the text below
the dean of the faculty approved it
I will frank the letter
plant an iris next to the ivy and the violet
how to cook rice with ginger and sage
Create a marketing plan for a coffee shop
Java, Python, Ruby, Swift, Go and Rust compared
What is the difference between Excel and Sheets?
Use pandas to read a csv and plot a bar chart
Docker compose does not start the Redis container
my card was declined, why
I want to top up my account
is there a fee for transfers
set an alarm for seven
turn on the lights in the kitchen
play some jazz
how many calories are in an egg
translate good morning to spanish
what time is it
tell me a joke
recommend a good book about economics
The doctor said rest; what does rest mean here?
who won the world cup
Fix this sentence: they was happy
Write a haiku about autumn and dawn
What does faith mean in philosophy?
reed, clay, stone and wood are building materials
A short rich field of black and green
def main(args): return args
SELECT count(*) FROM orders GROUP BY status
for i in range(10): print(i)
The hunter saw a robin near the cliff
penny stocks are risky
a joy to read
Is Monday a holiday?
The reader may want an example
Convert 72 degrees to celsius
how long does a replacement card take
what are the opening hours
I need help with linear algebra
List ten ideas for a team event
Summarize chapter 4
Improve my resume summary for a sales role
Compare two insurance plans
Is ibuprofen safe with coffee?
What are symptoms of diabetes?
The patient should fast before a blood test, explain why
Explain contract law basics
how do mortgages work
""".strip().splitlines()
)
