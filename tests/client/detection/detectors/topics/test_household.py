import pytest

from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.detectors.topics.household import HouseholdDetector
from curtilage.policy.decision.findings import Normalization


def found(text: str) -> set[str]:
    reading = Reading(normalization=Normalization.RAW, text=text)
    return {span.data_class for span in HouseholdDetector().find(reading)}


@pytest.mark.parametrize(
    "text",
    [
        # Two things of a household with a sum each.
        "take-home 1,940, rent 1,150. what goes first",
        "Kaltmiete 780, Kita: 210 €, Reihenfolge?",
        "loyer : 720 €, cantine 85. dans quel ordre ?",
        "alquiler 640, guardería 190, ¿llega?",
        "affitto 590, bollette 120: basta?",
        "huur 870, kinderopvang 310, welke eerst?",
        "lening 240, opvang 310, uitkering 870: welke eerst?",
        "renda 610, creche 240, o que pago primeiro",
        "1.150 € for rent, 300 groceries",
        # Two that a company has as well, one right behind the other.
        "salary 2,300, debts 8k. order?",
        # Below zero, and owed.
        "Konto -2.871, Gasabschlag 180 offen",
        "solde -640, relance reçue",
        # Rows of people who are known by a number.
        "kunde_5518: saldo -741,90; mahnstufe 2",
        "customer 88213: balance -402.10; garnishment yes",
    ],
)
def test_figures_of_a_household_are_somebodys_money(text: str) -> None:
    assert found(text) == {"financial.balance", "marker.first_person"}


@pytest.mark.parametrize(
    "text",
    [
        "What is a fair rent for a flat of 60 square metres?",
        "Rent rose by 4 % in 2024, salaries by 3 %.",
        "Pension 1,204 1,310\nInsurance 2,005 1,988",
        "| rent | 1200 | 1300 |\n| food | 400 | 410 |",
        "x = account.balance -5",
        "Was kostet Strom im Durchschnitt, 30 Cent?",
        "Explain what an overdraft of 500 euros costs.",
        "salary: 5000\n\n\nA longer text in between.\n\ninsurance: 30",
    ],
)
def test_impersonal_sums_are_not_findings(text: str) -> None:
    assert found(text) == set()


@pytest.mark.parametrize(
    "text",
    [
        "our quarter comes out on Monday, 9 % down, write a calm note",
        "unser Umsatz sinkt um 8 %, schreib dem Team",
        "unsere Zahlen fürs Q2 gehen raus, 14 % unter Plan",
        "nos résultats du trimestre sortent lundi, moins 7 %",
        "nuestras cifras del trimestre salen el lunes, un 6 % menos",
        "il nostro fatturato cala del 5 per cento",
        "onze omzet valt 11 % lager uit",
        "os nossos números do trimestre saem segunda, menos 9 %",
    ],
)
def test_a_companys_own_figures_are_inside_knowledge(text: str) -> None:
    assert found(text) == {"org.confidential"}


@pytest.mark.parametrize(
    "text",
    [
        "Our results show 93 % accuracy on the test set.",
        "What did the company's revenue of 12 % growth mean?",
        "nos résultats montrent 12 % d'erreur",
        "our team of five",
    ],
)
def test_figures_of_research_or_of_others_are_none(text: str) -> None:
    assert found(text) == set()
