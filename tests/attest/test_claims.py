from datetime import UTC, datetime
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.claims import (
    HOST_DATA,
    IMAGE_PCRS,
    REQUIRED_REGISTERS,
    CpuClaims,
    DeviceClaims,
    difference,
    first_difference,
    measurement_matches,
    measurement_problem,
    require_measurement,
)
from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.evidence import DeviceKind, Tee
from curtilage.attest.expectations import SNP_TEES
from support.examples import examples

NOW = datetime(2027, 6, 1, 12, tzinfo=UTC)
S256, S384 = "ab" * 32, "cd" * 48
ZERO = "00" * 48
TDX: dict[str, str] = dict.fromkeys(("mrtd", "rtmr0", "rtmr1", "rtmr2", "rtmr3"), S384)
HOST: dict[str, str] = dict.fromkeys(("mrconfigid", "mrowner", "mrownerconfig"), ZERO)
MEASURED: dict[Tee, dict[str, str]] = {
    Tee.SEV_SNP: {"launch": S384},
    Tee.TDX: TDX,
    Tee.NITRO: {"pcr0": S384, "pcr1": S384, "pcr2": S384},
    Tee.AZURE_SNP: {"launch": S384, "pcr11": S256},
    Tee.AZURE_TDX: {"mrtd": S384, "pcr11": S256},
    Tee.TPM: {"pcr4": S256},
}
SHOWN: dict[Tee, dict[str, str]] = {
    Tee.SEV_SNP: {"launch": S384, HOST_DATA: S256},
    Tee.TDX: {**TDX, **HOST, "mrseam": S384},
    Tee.NITRO: {f"pcr{index}": S384 for index in range(16)},
    Tee.AZURE_SNP: {
        "launch": S384,
        HOST_DATA: S256,
        **{f"pcr{n}": S256 for n in range(24)},
    },
    Tee.AZURE_TDX: {**TDX, **HOST, **{f"pcr{n}": S256 for n in range(24)}},
    Tee.TPM: {f"pcr{n}": S256 for n in range(24)},
}
NOTHING: dict[str, str] = {}
NONE: list[dict[str, str]] = []
GENUINE = [tee for tee in Tee if not tee.emulated]


@pytest.mark.parametrize("tee", GENUINE)
def test_what_is_named_and_equal_matches(tee: Tee) -> None:
    assert measurement_problem(MEASURED[tee], tee) is None
    shown = {**HOST, **SHOWN[tee]}
    assert measurement_matches(shown, [MEASURED[tee]], tee)
    assert measurement_matches(shown, [{}, MEASURED[tee]], tee)


@pytest.mark.parametrize("tee", GENUINE)
def test_a_refused_measurement_is_reported_in_full(tee: Tee) -> None:
    shown = {**HOST, **SHOWN[tee]}
    require_measurement(shown, [MEASURED[tee]], tee)
    with pytest.raises(RefusedError) as refused:
        require_measurement(shown, [], tee)
    assert refused.value.code is RefusalCode.MEASUREMENT_NOT_ALLOWED
    detail, _, rest = refused.value.detail.partition("; ")
    assert rest == "none is accepted"
    reported = dict(
        entry.split(" ") for entry in detail.removeprefix("not accepted: ").split(", ")
    )
    assert reported == {
        name: value for name, value in shown.items() if value.strip("0")
    }


def with_digit(value: str, at: int, digit: str) -> str:
    return f"{value[:at]}{digit}{value[at + 1 :]}"


@pytest.mark.parametrize(
    ("tee", "name"), [(tee, name) for tee in GENUINE for name in MEASURED[tee]]
)
@examples("at", [0, 5, 40, -1])
def test_a_refusal_shows_the_accepted_value_and_the_first_difference(
    tee: Tee, name: str, at: int
) -> None:
    """A wrong digit among 96 is not seen by eye."""
    accepted = MEASURED[tee]
    value = accepted[name]
    at %= len(value)
    shown = {**HOST, **SHOWN[tee], name: with_digit(value, at, "7")}
    far = {key: "1" * len(each) for key, each in accepted.items()}
    with pytest.raises(RefusedError) as refused:
        require_measurement(shown, [far, accepted, far], tee)
    detail = refused.value.detail
    assert f" 3): {name} {value}; " in detail
    assert f" digit {at + 1} on: " in detail
    measured, _, other = detail.rpartition(" on: ")[2].partition(", not ")
    before, after = value[max(at - 8, 0) : at], value[at + 1 : at + 9]
    assert measured.strip("…") == f"{before}[7]{after}"
    assert other.strip("…") == f"{before}[{value[at]}]{after}"


@pytest.mark.parametrize(
    ("registers", "accepted", "said"),
    [
        ({"launch": S384}, NONE, "none is accepted"),
        (
            {"launch": S384},
            [NOTHING],
            "what is accepted matches nothing: it names no la",
        ),
        (
            NOTHING,
            [{"launch": S384}],
            f"accepted: launch {S384}; the evidence has no lau",
        ),
        ({"launch": S384}, [{"launch": S384[:-2]}], "it launch is not 96 hex digits"),
    ],
)
def test_a_measurement_that_nothing_could_match_is_reported(
    registers: dict[str, str], accepted: list[dict[str, str]], said: str
) -> None:
    assert said in difference(registers, accepted, Tee.SEV_SNP)


@pytest.mark.parametrize("name", HOST)
def test_values_that_a_host_set_are_reported(name: str) -> None:
    shown = {**SHOWN[Tee.TDX], name: S384}
    said = difference(shown, [TDX], Tee.TDX)
    assert said == f"accepted: {name} of zeros alone"


@given(st.text("0123456789abcdef", max_size=99), st.text("0123456789abcdef"))
def test_any_two_values_can_be_compared(one: str, other: str) -> None:
    said = first_difference(one, other)
    assert said.count("[") == 2
    assert len(said) < 120


@pytest.mark.parametrize("tee", GENUINE)
def test_nothing_matches_an_empty_list_or_an_empty_measurement(tee: Tee) -> None:
    lists: list[list[dict[str, str]]] = [[], [{}]]
    for accepted in lists:
        assert not measurement_matches({**HOST, **SHOWN[tee]}, accepted, tee)


@pytest.mark.parametrize(
    ("tee", "name"), [(tee, name) for tee in GENUINE for name in MEASURED[tee]]
)
def test_every_named_register_counts(tee: Tee, name: str) -> None:
    """Another value, a register that is not shown, and one that is not named."""
    accepted, shown = MEASURED[tee], {**HOST, **SHOWN[tee]}
    other = {**accepted, name: "0" * len(accepted[name])}
    assert not measurement_matches(shown, [other], tee)
    hidden = {key: value for key, value in shown.items() if key != name}
    assert not measurement_matches(hidden, [accepted], tee)
    unnamed = {key: value for key, value in accepted.items() if key != name}
    assert not measurement_matches(shown, [unnamed], tee)
    assert measurement_problem(unnamed, tee) is not None


@pytest.mark.parametrize("name", HOST)
def test_what_a_host_sets_is_zero_unless_it_is_named(name: str) -> None:
    shown = {**SHOWN[Tee.TDX], name: S384}
    assert not measurement_matches(shown, [TDX], Tee.TDX)
    assert measurement_matches(shown, [{**TDX, name: S384}], Tee.TDX)
    assert not measurement_matches(SHOWN[Tee.TDX], [{**TDX, name: S384}], Tee.TDX)


def test_a_register_more_must_match_too() -> None:
    more = {**MEASURED[Tee.NITRO], "pcr8": ZERO}
    assert not measurement_matches(SHOWN[Tee.NITRO], [more], Tee.NITRO)
    assert measurement_matches({**SHOWN[Tee.NITRO], "pcr8": ZERO}, [more], Tee.NITRO)


@pytest.mark.parametrize(
    ("tee", "measurement", "said"),
    [
        (Tee.SEV_SNP, {}, "names no launch"),
        (Tee.TDX, {"mrtd": S384}, "names no rtmr0, no rtmr1, no rtmr2, no rtmr3"),
        (Tee.AZURE_SNP, {"launch": S384}, "names no TPM register"),
        (Tee.AZURE_TDX, {"pcr4": S256}, "names no mrtd"),
        (Tee.TPM, {}, "names no TPM register"),
        (Tee.SEV_SNP, {"launch": S384, "pcr4": S256}, "does not exist in such"),
        (Tee.TDX, {**TDX, "pcr4": S256}, "does not exist in such"),
        (Tee.AZURE_SNP, {"launch": S384, "mrtd": S384}, "does not exist in such"),
        (Tee.TPM, {"pcr4": S256, "pcr24": S256}, "does not exist in such"),
        (
            Tee.NITRO,
            {**MEASURED[Tee.NITRO], "pcr32": S384},
            "does not exist in such",
        ),
        (Tee.SEV_SNP, {"launch": S256}, "launch is not 96 hex digits"),
        (Tee.NITRO, {"pcr0": S256}, "pcr0 is not 96 hex digits"),
        (Tee.TPM, {"pcr0": S384}, "pcr0 is not 64 hex digits"),
        (Tee.TPM, {"pcr00": S256}, "a register that does not exist"),
        (Tee.SEV_SNP, {"launch": S384, "lunch": S384}, "that does not exist"),
    ],
)
def test_a_measurement_that_could_never_match_is_reported(
    tee: Tee, measurement: dict[str, str], said: str
) -> None:
    assert said in (measurement_problem(measurement, tee) or "")
    assert not measurement_matches(measurement, [measurement], tee)


def _hardware(tee: Tee) -> dict[str, str]:
    return dict.fromkeys(REQUIRED_REGISTERS[tee], S384)


@pytest.mark.parametrize("tee", Tee)
def test_host_data_may_be_named_where_there_is_any(tee: Tee) -> None:
    """32 bytes, in an SNP report alone."""
    image = {"pcr4": S256} if tee.quoted else {}
    named = {**_hardware(tee), **image, "hostdata": S256}
    assert (measurement_problem(named, tee) is None) is (tee in SNP_TEES)
    assert measurement_problem({**named, "hostdata": S384}, tee) is not None
    # Evidence that does not show it is never a match.
    assert not measurement_matches({**HOST, **_hardware(tee), **image}, [named], tee)


QUOTED = [tee for tee in Tee if tee.quoted]
FOR_EVERYBODY = [0, 1, 2, 3, 5, 6, 7, 10, 14, 15, *range(16, 24)]


@pytest.mark.parametrize("tee", QUOTED)
@examples("number", FOR_EVERYBODY)
def test_a_register_that_is_no_images_pins_nothing(tee: Tee, number: int) -> None:
    """Alike for every tenant, or free for the guest to set: any image matches."""
    for value in (S256, "00" * 32, "ff" * 32):
        accepted = {**_hardware(tee), f"pcr{number}": value}
        assert "of the image" in (measurement_problem(accepted, tee) or "")
        assert not measurement_matches({**HOST, **accepted}, [accepted], tee)


@pytest.mark.parametrize("tee", QUOTED)
def test_one_register_of_the_image_is_enough(tee: Tee) -> None:
    for name in IMAGE_PCRS:
        assert measurement_problem({**_hardware(tee), name: S256}, tee) is None


@pytest.mark.parametrize("tee", QUOTED)
def test_registers_that_nothing_was_measured_into_pin_nothing(tee: Tee) -> None:
    """But a TPM by itself pins nothing anyway: one that measured nothing will do."""
    zeros = {**_hardware(tee), **dict.fromkeys(IMAGE_PCRS, "00" * 32)}
    problem = measurement_problem(zeros, tee)
    assert (problem is None) is (tee is Tee.TPM)
    assert problem is None or "but with zeros" in problem
    assert measurement_problem({**zeros, "pcr4": S256}, tee) is None


def test_emulated_kinds_must_name_what_genuine_ones_do() -> None:
    for tee in Tee:
        if tee.emulated:
            genuine = Tee(tee.value.removeprefix("emulated-"))
            assert REQUIRED_REGISTERS[tee] == REQUIRED_REGISTERS[genuine]


@given(
    registers=st.dictionaries(st.sampled_from(["launch", "pcr0", "mrtd"]), st.text()),
    accepted=st.lists(
        st.dictionaries(st.sampled_from(["launch", "pcr0", "mrtd"]), st.text())
    ),
    tee=st.sampled_from(list(Tee)),
)
def test_only_equal_registers_ever_match(
    registers: dict[str, str], accepted: list[dict[str, str]], tee: Tee
) -> None:
    if measurement_matches(registers, accepted, tee):
        assert any(each.items() <= registers.items() for each in accepted)


def test_claims_cannot_be_changed() -> None:
    cpu = CpuClaims(
        tee=Tee.SEV_SNP, registers={"launch": S384}, bound=b"", expires_at=NOW
    )
    device = DeviceClaims(
        kind=DeviceKind.NVIDIA_GPU, index=0, signed_part=b"", nonce=b"", expires_at=NOW
    )
    for mapping in (cpu.registers, cpu.details, device.details):
        changed = cast("dict[str, Any]", mapping)
        with pytest.raises(TypeError):
            changed["x"] = ""
