import pytest

from curtilage.client.detection.detectors.readings import Reading
from curtilage.client.detection.detectors.topics.pictures import PictureDetector
from curtilage.policy.decision.findings import Normalization


def found(text: str) -> set[str]:
    reading = Reading(normalization=Normalization.RAW, text=text)
    return {span.data_class for span in PictureDetector().find(reading)}


@pytest.mark.parametrize(
    ("text", "classes"),
    [
        ("me and 💉 again", {"health.condition"}),
        ("🎗️ stage 2, was jetzt", {"health.condition"}),
        ("👵🏽 💊 again, what now", {"health.condition", "marker.first_person"}),
        ("👩‍⚕️ says 🩸", {"health.condition", "marker.first_person"}),
        # Annoyance, unless it is somebody's.
        ("this code 🤮", set[str]()),
        ("👶 🤮 since Monday", {"health.condition", "marker.first_person"}),
        # Words say whose it is.
        ("mein Schwager ist 🤢 seit Sonntag", {"health.condition"}),
        ("vandaag alweer 🤢, bij mij", {"health.condition"}),
        ("Befund da: 🦠", {"health.condition", "marker.first_person"}),
        ("uitslag: 🧠, wat nu", {"health.condition", "marker.first_person"}),
        ("¿resultado? 🚀", set[str]()),
        ("the results are in the log and they are 🤮", set[str]()),
        ("works for me 🤯", set[str]()),
        ("again 🤮 a failing build", set[str]()),
        # About no one's health.
        ("👩‍💻 ships it 🚀", set[str]()),
        ("a family 👨‍👩‍👧 at the beach 👶", set[str]()),
        ("plain text", set[str]()),
    ],
)
def test_pictures_of_health_and_people(text: str, classes: set[str]) -> None:
    assert found(text) == classes
