"""Revocation: what is not known to be good is refused."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp
from hypothesis import given
from hypothesis import strategies as st

from curtilage.attest.errors import RefusalCode, RefusedError
from curtilage.attest.expectations import Revocation
from curtilage.attest.x509.certificates import (
    Certificate,
    parse_revocation_list,
    read_certificate,
)
from curtilage.attest.x509.p384_chain import check_chain, parse_chain
from curtilage.attest.x509.revocation import (
    SHORT_LIFE,
    RevocationRules,
    check_answers,
    check_lists,
    parse_answer,
)
from curtilage_dev.emulated.p384_pki import (
    P384Fields,
    new_key,
    sign_certificate,
    sign_chain,
)
from curtilage_dev.emulated.p384_revocation import (
    ANSWER_LIFE,
    BACKDATE,
    LIST_LIFE,
    AnswerFields,
    ChangeAnswer,
    ChangeList,
    ListFields,
    list_address,
    make_responder,
    purpose,
    scope,
    sign_answer,
    sign_answers,
    sign_list,
)

NOW = datetime(2027, 6, 1, 12, tzinfo=UTC)
RULES = RevocationRules(
    rule=Revocation.REQUIRED, max_age_s=30 * 86400, clock_skew_s=60, now=NOW
)
LENIENT = replace(RULES, rule=Revocation.IF_STAPLED)
FAR = NOW + timedelta(days=9999)
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
ADDRESS = "http://crl.test/root.crl"
NAMES = ("root", "region", "zone", "instance", "leaf")
LIVES = tuple(timedelta(days=each) for each in (9000, 20, 6, 1, 1))


def _fields(place: int) -> P384Fields:
    leaf = place == len(NAMES) - 1
    return P384Fields(
        common_name=NAMES[place],
        organization="test",
        key=new_key(),
        not_before=NOW - HOUR,
        not_after=NOW - HOUR + LIVES[place],
        authority=not leaf,
        signs_certificates=not leaf,
        signs_data=leaf,
        extensions=list_address(ADDRESS) if place == 1 else (),
    )


@cache
def fields() -> tuple[P384Fields, ...]:
    return tuple(_fields(place) for place in range(len(NAMES)))


def signed(*all_fields: P384Fields) -> tuple[bytes, ...]:
    root, *below = all_fields
    return (sign_certificate(root, root), *sign_chain(root, below))


@cache
def ders() -> tuple[bytes, ...]:
    return signed(*fields())


@cache
def chain() -> tuple[Certificate, ...]:
    parsed = parse_chain(ders())
    check_chain(parsed)
    return parsed


def made(place: int, change: ChangeList = lambda each: each) -> bytes:
    """Return a list of one authority's, changed before it is signed."""
    return sign_list(change(ListFields.ordinary(fields()[place], NOW)))


@cache
def lists() -> tuple[bytes, ...]:
    return made(0), made(1)


def with_list(**changes: object) -> ChangeList:
    return lambda each: replace(each, **changes)  # type: ignore[arg-type] # by name


def refused(act: Callable[[], object]) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        act()
    return caught.value


# --- lists --------------------------------------------------------------------


def test_current_lists_that_revoke_others_are_accepted() -> None:
    end = NOW - BACKDATE + LIST_LIFE
    assert check_lists(chain(), lists(), RULES).ends == (end, end)
    others = made(0, with_list(revoked=(1, 2, 3)))
    # The order is free.
    assert check_lists(chain(), (lists()[1], others), RULES).ends == (end, end)


@pytest.mark.parametrize("place", [0, 1], ids=["root's", "region's"])
def test_the_first_list_that_ends_is_the_end(place: int) -> None:
    soon = NOW + HOUR
    ending = made(place, with_list(next_update=soon))
    served = (ending, lists()[1 - place])
    assert check_lists(chain(), served, RULES).until(FAR) == soon
    assert check_lists(chain(), served, RULES).until(NOW) == NOW
    # By our own rule, where that is earlier.
    young = replace(RULES, max_age_s=int(BACKDATE.total_seconds()) + 80)
    assert check_lists(chain(), lists(), young).until(FAR) == NOW + 80 * SECOND


@pytest.mark.parametrize("place", [0, 1], ids=["root's", "region's"])
def test_a_missing_list_is_refused(place: int) -> None:
    error = refused(lambda: check_lists(chain(), (lists()[1 - place],), RULES))
    assert error.code is RefusalCode.CRL_MISSING
    assert refused(lambda: check_lists(chain(), (), RULES)).code is error.code


@pytest.mark.parametrize("place", range(1, len(NAMES)), ids=NAMES[1:])
def test_each_revoked_certificate_is_refused(place: int) -> None:
    """Also where no list is needed: one that came is heeded."""
    revoking = made(place - 1, with_list(revoked=(7, chain()[place].serial)))
    served = {0: lists()[0], 1: lists()[1], place - 1: revoking}
    error = refused(lambda: check_lists(chain(), tuple(served.values()), RULES))
    assert error.code is RefusalCode.REVOKED


def test_a_certificate_of_a_short_life_needs_no_list() -> None:
    root, region, *rest = fields()
    region = replace(region, not_after=region.not_before + SHORT_LIFE)
    zone, *rest = rest
    zone = replace(zone, not_after=zone.not_before + SHORT_LIFE)
    short = parse_chain(signed(root, region, zone, *rest))
    assert check_lists(short, (), RULES).ends == ()
    zone = replace(zone, not_after=zone.not_after + SECOND)
    long = parse_chain(signed(root, region, zone, *rest))
    assert refused(lambda: check_lists(long, (), RULES)).code is RefusalCode.CRL_MISSING


LISTS: dict[str, tuple[Callable[[], bytes], RefusalCode]] = {
    "no list": (lambda: b"x", RefusalCode.CRL_INVALID),
    "cut": (lambda: lists()[0][:-1], RefusalCode.CRL_INVALID),
    "more": (lambda: lists()[0] + b"\0", RefusalCode.CRL_INVALID),
    "another authority's": (
        lambda: sign_list(ListFields.ordinary(fields()[3], NOW)),
        RefusalCode.CRL_MISSING,
    ),
    "nobody's": (
        lambda: made(
            0,
            lambda each: replace(
                each, issuer=replace(each.issuer, common_name="somebody")
            ),
        ),
        RefusalCode.CRL_INVALID,
    ),
    "another key's": (
        lambda: made(
            0, lambda each: replace(each, issuer=replace(each.issuer, key=new_key()))
        ),
        RefusalCode.CRL_INVALID,
    ),
    "SHA-256": (
        lambda: made(0, with_list(algorithm=hashes.SHA256())),
        RefusalCode.CRL_INVALID,
    ),
    "ended": (
        lambda: made(0, with_list(next_update=NOW)),
        RefusalCode.CRL_EXPIRED,
    ),
    "of the future": (
        lambda: made(0, with_list(issued=NOW + 61 * SECOND)),
        RefusalCode.NOT_YET_VALID,
    ),
    "old": (
        lambda: made(
            0,
            with_list(
                issued=NOW - timedelta(days=30), next_update=NOW + timedelta(days=30)
            ),
        ),
        RefusalCode.CRL_EXPIRED,
    ),
    "of another part": (
        lambda: made(0, with_list(scope=scope("http://crl.test/other.crl"))),
        RefusalCode.CRL_MISSING,
    ),
}


@pytest.mark.parametrize("name", LISTS)
def test_a_wrong_list_is_refused(name: str) -> None:
    make, code = LISTS[name]
    error = refused(lambda: check_lists(chain(), (make(), lists()[1]), RULES))
    assert error.code is code


def test_a_list_of_the_part_that_a_certificate_names_is_accepted() -> None:
    part = made(0, with_list(scope=scope("http://crl.test/x", ADDRESS)))
    assert check_lists(chain(), (part, lists()[1]), RULES) is not None
    # Of two parts, the one that is about the certificate.
    other = made(0, with_list(scope=scope("http://crl.test/other.crl")))
    assert check_lists(chain(), (other, part, lists()[1]), RULES) is not None


PARTS = {
    "authorities alone": {"only_contains_ca_certs": True},
    "leaves alone": {"only_contains_user_certs": True},
    "attributes alone": {"only_contains_attribute_certs": True},
    "others' certificates": {"indirect_crl": True},
    "some reasons": {"only_some_reasons": frozenset({x509.ReasonFlags.key_compromise})},
}


@pytest.mark.parametrize("name", PARTS)
def test_a_list_about_some_kinds_is_refused(name: str) -> None:
    values: dict[str, object] = {
        "full_name": [x509.UniformResourceIdentifier(ADDRESS)],
        "relative_name": None,
        "only_contains_user_certs": False,
        "only_contains_ca_certs": False,
        "only_some_reasons": None,
        "indirect_crl": False,
        "only_contains_attribute_certs": False,
        **cast("dict[str, object]", PARTS[name]),
    }
    point = x509.IssuingDistributionPoint(**values)  # type: ignore[arg-type] # by name
    partial = made(0, with_list(scope=point))
    error = refused(lambda: check_lists(chain(), (partial, lists()[1]), RULES))
    assert error.code is RefusalCode.CRL_INVALID


def test_a_list_about_a_part_is_refused_by_who_does_not_compare() -> None:
    part = made(0, with_list(scope=scope(ADDRESS)))
    assert parse_revocation_list(part, "list", scoped=True).scope == {ADDRESS}
    error = refused(lambda: parse_revocation_list(part, "list"))
    assert error.code is RefusalCode.CRL_INVALID


def test_an_authority_that_may_not_sign_lists_is_refused() -> None:
    root, *rest = fields()
    root = replace(root, signs_lists=False)
    other = parse_chain(signed(root, *rest))
    served = (sign_list(ListFields.ordinary(root, NOW)), lists()[1])
    error = refused(lambda: check_lists(other, served, RULES))
    assert error.code is RefusalCode.CRL_INVALID


def test_what_is_stapled_must_hold_where_nothing_need_be() -> None:
    assert check_lists(chain(), (), LENIENT).ends == ()
    assert "nothing is stapled" in check_lists(chain(), (), LENIENT).words
    assert len(check_lists(chain(), lists()[:1], LENIENT).ends) == 1
    revoking = made(0, with_list(revoked=(chain()[1].serial,)))
    error = refused(lambda: check_lists(chain(), (revoking,), LENIENT))
    assert error.code is RefusalCode.REVOKED
    ended = made(0, with_list(next_update=NOW))
    error = refused(lambda: check_lists(chain(), (ended,), LENIENT))
    assert error.code is RefusalCode.CRL_EXPIRED


# --- answers ------------------------------------------------------------------


@cache
def answers() -> tuple[bytes, ...]:
    return sign_answers(fields(), ders(), NOW)


def answered(change: ChangeAnswer, *, place: int = 1) -> tuple[bytes, ...]:
    """Return all answers; the one at this place is changed before it is signed."""
    about = AnswerFields(
        certificate=ders()[place],
        issuer=ders()[place - 1],
        responder=make_responder(fields()[place - 1], NOW),
        appointed_by=fields()[place - 1],
        issued=NOW - BACKDATE,
        next_update=NOW - BACKDATE + ANSWER_LIFE,
    )
    others = list(answers())
    others[place - 1] = sign_answer(change(about))
    return tuple(others)


def with_answer(**changes: object) -> ChangeAnswer:
    return lambda each: replace(each, **changes)  # type: ignore[arg-type] # by name


def with_responder(**changes: object) -> ChangeAnswer:
    """Change what the responder's certificate says."""

    def change(each: AnswerFields) -> AnswerFields:
        responder = replace(each.responder, **changes)  # type: ignore[arg-type] # by name
        return replace(each, responder=responder)

    return change


def test_good_answers_are_accepted_in_any_order() -> None:
    end = NOW - BACKDATE + ANSWER_LIFE
    assert len(answers()) == len(chain()) - 2
    assert check_answers(chain(), answers(), RULES).ends == (end,) * 3
    assert check_answers(chain(), answers()[::-1], RULES).ends == (end,) * 3


@pytest.mark.parametrize("place", [1, 2, 3])
def test_the_first_answer_that_ends_is_the_end(place: int) -> None:
    soon = NOW + HOUR
    served = answered(with_answer(next_update=soon), place=place)
    assert check_answers(chain(), served, RULES).until(FAR) == soon
    served = answered(with_responder(not_after=soon), place=place)
    assert check_answers(chain(), served, RULES).until(FAR) == soon
    young = replace(RULES, max_age_s=int(BACKDATE.total_seconds()) + 80)
    assert check_answers(chain(), answers(), young).until(FAR) == NOW + 80 * SECOND


ACCEPTED: dict[str, ChangeAnswer] = {
    "SHA-384": with_answer(algorithm=hashes.SHA384()),
    "critical purpose": with_responder(extensions=purpose(critical=True)),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_other_forms_of_a_good_answer_are_accepted(name: str) -> None:
    assert check_answers(chain(), answered(ACCEPTED[name]), RULES) is not None


def test_an_issuer_may_answer_itself() -> None:
    def by_the_issuer(each: AnswerFields) -> AnswerFields:
        root = fields()[0]
        return replace(each, responder=root, appointed_by=root, alone=True)

    assert check_answers(chain(), answered(by_the_issuer), RULES) is not None


@pytest.mark.parametrize("place", [1, 2, 3])
@pytest.mark.parametrize(
    ("status", "code"),
    [
        (ocsp.OCSPCertStatus.REVOKED, RefusalCode.REVOKED),
        (ocsp.OCSPCertStatus.UNKNOWN, RefusalCode.CRL_MISSING),
    ],
)
def test_each_certificate_must_be_good(
    place: int, status: ocsp.OCSPCertStatus, code: RefusalCode
) -> None:
    served = answered(with_answer(status=status), place=place)
    assert refused(lambda: check_answers(chain(), served, RULES)).code is code


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_missing_answer_is_refused(place: int) -> None:
    served = (*answers()[:place], *answers()[place + 1 :])
    error = refused(lambda: check_answers(chain(), served, RULES))
    assert error.code is RefusalCode.CRL_MISSING
    # Nor does an answer about another one take its place.
    twice = (*served, served[0])
    error = refused(lambda: check_answers(chain(), twice, RULES))
    assert error.code in {RefusalCode.CRL_MISSING, RefusalCode.CRL_INVALID}


def _elsewhere(each: AnswerFields) -> AnswerFields:
    """Appointed by the authority one below."""
    return replace(each, appointed_by=fields()[1])


def _posing(each: AnswerFields) -> AnswerFields:
    """Appointed by another key under the true authority's name."""
    return replace(each, appointed_by=replace(each.appointed_by, key=new_key()))


def _unnamed(each: AnswerFields) -> AnswerFields:
    """Signed by the true authority's key under another name."""
    responder = replace(each.responder, issuer_name="somebody")
    return replace(each, responder=responder)


ANSWERS: dict[str, tuple[ChangeAnswer, RefusalCode]] = {
    "another key's": (_posing, RefusalCode.CRL_INVALID),
    "another authority's": (_elsewhere, RefusalCode.CRL_INVALID),
    "another name's": (_unnamed, RefusalCode.CRL_INVALID),
    "without the signer": (with_answer(alone=True), RefusalCode.CRL_INVALID),
    "no purpose": (with_responder(extensions=()), RefusalCode.CRL_INVALID),
    "two purposes": (
        with_responder(extensions=purpose(also=["1.3.6.1.5.5.7.3.1"])),
        RefusalCode.CRL_INVALID,
    ),
    "an authority": (with_responder(authority=True), RefusalCode.CRL_INVALID),
    "signer on P-256": (
        with_responder(key=ec.generate_private_key(ec.SECP256R1())),
        RefusalCode.CRL_INVALID,
    ),
    "signer ended": (
        with_responder(not_after=NOW - SECOND),
        RefusalCode.CRL_EXPIRED,
    ),
    "signer of the future": (
        with_responder(not_before=NOW + SECOND),
        RefusalCode.CRL_EXPIRED,
    ),
    "SHA-256": (with_answer(signed_with=hashes.SHA256()), RefusalCode.CRL_INVALID),
    "named by SHA-1": (with_answer(algorithm=hashes.SHA1()), RefusalCode.CRL_INVALID),  # noqa: S303 - what is refused
    "no end": (with_answer(next_update=None), RefusalCode.CRL_INVALID),
    "ended": (with_answer(next_update=NOW), RefusalCode.CRL_EXPIRED),
    "of the future": (with_answer(issued=NOW + 61 * SECOND), RefusalCode.NOT_YET_VALID),
    "old": (
        with_answer(
            issued=NOW - timedelta(days=30), next_update=NOW + timedelta(days=30)
        ),
        RefusalCode.CRL_EXPIRED,
    ),
    "critical extension": (
        with_answer(extensions=((x509.OCSPNonce(b"1" * 16), True),)),
        RefusalCode.CRL_INVALID,
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_wrong_answer_is_refused(name: str) -> None:
    change, code = ANSWERS[name]
    error = refused(lambda: check_answers(chain(), answered(change), RULES))
    assert error.code is code


def test_an_answer_about_a_certificate_of_another_authority_is_refused() -> None:
    """The same serial number, by name and by key of another issuer."""
    other = replace(fields()[0], key=new_key())
    alien = sign_certificate(other, other)
    served = answered(with_answer(issuer=alien))
    error = refused(lambda: check_answers(chain(), served, RULES))
    assert error.code is RefusalCode.CRL_MISSING


def test_what_is_answered_must_hold_where_nothing_need_be() -> None:
    assert check_answers(chain(), (), LENIENT).ends == ()
    assert len(check_answers(chain(), answers()[1:], LENIENT).ends) == 2
    revoked = answered(with_answer(status=ocsp.OCSPCertStatus.REVOKED))
    error = refused(lambda: check_answers(chain(), revoked[:1], LENIENT))
    assert error.code is RefusalCode.REVOKED
    stranger = sign_answers(fields(), signed(*fields()), NOW)
    error = refused(lambda: check_answers(chain(), stranger, LENIENT))
    assert error.code is RefusalCode.CRL_INVALID


def test_two_answers_about_one_certificate_are_refused() -> None:
    served = (*answers(), answered(lambda each: each)[0])
    error = refused(lambda: check_answers(chain(), served, RULES))
    assert error.code is RefusalCode.CRL_INVALID


def test_an_answer_about_another_chain_is_refused() -> None:
    other = signed(*fields())
    stranger = sign_answers(fields(), other, NOW)[0]
    error = refused(lambda: check_answers(chain(), (*answers(), stranger), RULES))
    assert error.code is RefusalCode.CRL_INVALID


@pytest.mark.parametrize(
    "status",
    [each for each in ocsp.OCSPResponseStatus if each.name != "SUCCESSFUL"],
    ids=lambda each: each.name,
)
def test_no_answer_is_refused(status: ocsp.OCSPResponseStatus) -> None:
    built = ocsp.OCSPResponseBuilder.build_unsuccessful(status)
    encoded = built.public_bytes(Encoding.DER)
    assert refused(lambda: parse_answer(encoded, "x")).code is RefusalCode.CRL_INVALID


def test_bytes_around_an_answer_are_refused() -> None:
    true = answers()[0]
    for wrong in (b"", b"x", true[:-1], true + b"\0"):
        error = refused(partial(parse_answer, wrong, "x"))
        assert error.code is RefusalCode.CRL_INVALID


@given(st.data())
def test_no_flipped_bit_of_an_answer_is_accepted_as_another(
    data: st.DataObject,
) -> None:
    true = answers()[0]
    bit = data.draw(st.integers(0, 8 * len(true) - 1))
    flipped = bytearray(true)
    flipped[bit // 8] ^= 1 << bit % 8
    served = (bytes(flipped), *answers()[1:])
    try:
        end = check_answers(chain(), served, RULES)
    except RefusedError:
        return
    # What is not signed by the authority: the responder's certificate is, its place
    # and the responder's name are not looked at.
    assert end == check_answers(chain(), answers(), RULES)


def test_only_one_purpose_makes_a_responder() -> None:
    responder = make_responder(fields()[0], NOW)
    assert read_certificate(sign_certificate(responder, fields()[0])).signs_answers
    other = purpose(also=["1.3.6.1.5.5.7.3.2"], critical=True)
    both = replace(responder, extensions=other)
    read = read_certificate(sign_certificate(both, fields()[0]))
    assert (read.signs_answers, read.unknown_critical) == (False, True)


def test_a_certificate_says_where_its_issuers_list_is() -> None:
    assert [each.list_addresses for each in chain()[:3]] == [
        frozenset(),
        frozenset({ADDRESS}),
        frozenset(),
    ]
    assert LIST_LIFE > SHORT_LIFE
