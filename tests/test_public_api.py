import curtilage.client


def test_the_client_exports_exactly_this() -> None:
    assert sorted(curtilage.client.__all__) == [
        "Answer",
        "Answerer",
        "Client",
        "ClientError",
        "Delta",
        "Provenance",
        "SyncClient",
        "TelemetrySettings",
    ]
    for name in curtilage.client.__all__:
        assert getattr(curtilage.client, name).__doc__


def test_another_name_is_an_attribute_error() -> None:
    assert not hasattr(curtilage.client, "Session")
