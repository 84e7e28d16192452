import pytest

from curtilage.client.chat.model_names import ANY, ModelNames, Target
from curtilage.client.chat.openai_chat import parse_completion_request, query_from
from curtilage.client.chat.openai_fields import MODEL_ID
from curtilage.client.chat.options import Mode, Require, RoutingOptions
from curtilage.client.errors import ModelNotFoundError, UsageError

CANARY = "canary-0b1d"
NAMES = ModelNames(
    models=frozenset({"small", "code"}),
    aliases={
        "gpt-4o-mini": "small",
        "gpt-4o": MODEL_ID,
        "openai/o3": "enclave",
        "ward": "on_premises",
        "here": "local",
    },
)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        (None, Target()),
        (MODEL_ID, Target()),
        ("gpt-4o", Target()),
        ("small", Target(require=Require.LOCAL, local_model="small")),
        ("gpt-4o-mini", Target(require=Require.LOCAL, local_model="small")),
        ("here", Target(require=Require.LOCAL)),
        ("ward", Target(require=Require.ON_PREMISES)),
        ("openai/o3", Target(require=Require.ENCLAVE)),
    ],
)
def test_each_name_stands_for_one_thing(name: str | None, target: Target) -> None:
    assert NAMES.target(name) == target


@pytest.mark.parametrize("name", [CANARY, "", "SMALL", "small ", 7, ["small"], ANY])
def test_an_unknown_name_is_refused_and_not_repeated(name: object) -> None:
    with pytest.raises(ModelNotFoundError, match="GET /v1/models") as refused:
        NAMES.target(name)
    assert (refused.value.http_status, refused.value.param) == (404, "model")
    assert CANARY not in str(refused.value)
    assert "gpt-4o-mini" in str(refused.value)


def test_the_error_lists_a_few_names_only() -> None:
    names = ModelNames(models=frozenset(f"m{number:03}" for number in range(99)))
    with pytest.raises(ModelNotFoundError, match="m014, …") as refused:
        names.target(CANARY)
    assert "m015" not in str(refused.value)


def test_with_the_catch_all_every_name_is_known_and_it_is_not_listed() -> None:
    names = ModelNames(
        models=frozenset({"small"}), aliases={ANY: "small", "x": "local"}
    )
    assert names.target(CANARY).local_model == "small"
    assert names.target("x") == Target(require=Require.LOCAL)
    assert names.target(MODEL_ID) == Target()
    assert names.listed == (MODEL_ID, "small", "x")
    with pytest.raises(ModelNotFoundError):
        names.target(7)


def test_a_local_model_is_a_restriction() -> None:
    asked = RoutingOptions(mode=Mode.ENCLAVE_IF_ALLOWED)
    options = NAMES.target("small").narrowed(asked)
    assert (options.require, options.local_model) == (Require.LOCAL, "small")
    assert NAMES.target("gpt-4o").narrowed(asked) is asked


@pytest.mark.parametrize(
    ("name", "options", "param"),
    [
        ("small", RoutingOptions(require=Require.ENCLAVE), "require"),
        ("small", RoutingOptions(require=Require.ON_PREMISES), "require"),
        ("openai/o3", RoutingOptions(require=Require.LOCAL), "require"),
        ("openai/o3", RoutingOptions(mode=Mode.HOME), "mode"),
        ("small", RoutingOptions(defer=True), "defer"),
        ("small", RoutingOptions(max_cost_microusd=0), "max_cost"),
        ("small", RoutingOptions(ttft_ms=1, slo_hard=True), "slo_hard"),
    ],
)
def test_options_that_ask_for_something_else_are_refused(
    name: str, options: RoutingOptions, param: str
) -> None:
    with pytest.raises(UsageError) as refused:
        NAMES.target(name).narrowed(options)
    assert refused.value.param == param


@pytest.mark.parametrize(
    ("models", "aliases", "said"),
    [
        (("curtilage",), {}, "has a meaning already"),
        (("local",), {}, "has a meaning already"),
        ((), {"enclave": "local"}, "has a meaning already"),
        (("a b",), {}, "is no name"),
        (("*",), {}, "is no name"),
        (("",), {}, "is no name"),
        (("a" * 129,), {}, "is no name"),
        ((), {"-a": "local"}, "is no name"),
        (("a",), {"a": "local"}, "is the name of a model"),
        ((), {"a": "b"}, "which is no model"),
        ((), {"a": "default"}, "which is no model"),
        ((), {"a": "b", "b": "a"}, "stands for another alias"),
        ((), {"a": "a"}, "stands for another alias"),
        (("m",), {"a": "b", "b": "m"}, "stands for another alias"),
        ((), {"a": ANY, ANY: "local"}, "stands for another alias"),
    ],
)
def test_names_that_mislead_are_reported(
    models: tuple[str, ...], aliases: dict[str, str], said: str
) -> None:
    names = ModelNames(models=frozenset(models), aliases=aliases)
    assert any(said in each for each in names.problems())


def test_names_that_do_not_are_not() -> None:
    assert list(NAMES.problems()) == []
    assert list(ModelNames(aliases={ANY: MODEL_ID, "a:b@1": "local"}).problems()) == []


def test_endpoint_and_library_read_the_same_name() -> None:
    body = b'{"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hi"}]}'
    asked = parse_completion_request(body, NAMES).query
    called = query_from("hi", {"model": "gpt-4o-mini"}, stream=False, names=NAMES)
    for query in (asked, called):
        assert query.options == RoutingOptions(
            require=Require.LOCAL, local_model="small"
        )
        assert b"small" not in query.payload().content
        assert b"gpt-4o-mini" not in query.payload().content
    with pytest.raises(ModelNotFoundError):
        query_from("hi", {"model": "gpt-4o-mini"}, stream=False)
