import pytest

from prfaas.errors import ConfigError
from prfaas_gateway.request_spans import RequestSpans
from prfaas_gateway.span_exporter import MAX_WAITING, ExportSettings, SpanExporter
from prfaas_gateway.spans import Span, SpanKind, export_request

BASE = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"


def test_spans_are_off_by_default() -> None:
    assert ExportSettings.of({}) is None
    assert ExportSettings.of({BASE: "http://c:4318", "OTEL_SDK_DISABLED": "true"}) is None


def test_the_environment_says_where_they_go_and_who_we_are() -> None:
    found = ExportSettings.of(
        {
            BASE: "http://c:4318/",
            "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%3Db, x=1",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment=prod",
            "OTEL_SERVICE_NAME": "front",
        }
    )
    assert found is not None
    assert found.url == "http://c:4318/v1/traces"
    assert found.headers == {"api-key": "a=b", "x": "1"}
    assert found.resource == {"deployment.environment": "prod", "service.name": "front"}
    own = ExportSettings.of({BASE: "http://c:4318", TRACES: "https://t/here"})
    assert own is not None
    assert own.url == "https://t/here"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (BASE, "c:4318"),
        (BASE, "grpc://c:4317"),
        (TRACES, "http://"),
        (BASE, "http://["),
        (BASE, "http://c:99999"),
        (BASE, "https://user:hidden@c:4318"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=b,hidden"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "a=hidden%0d%0ab:%20c"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "nothing"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
    ],
)
def test_what_cannot_be_used_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        ExportSettings.of({BASE: "http://c:4318", name: value})
    assert "hidden" not in str(caught.value)


def test_a_request_has_the_form_of_otlp() -> None:
    root = Span("POST /x", "a" * 32, "", SpanKind.SERVER, 1.5, 2.5, attributes={"n": 2, "ok": True})
    child = root.child("decode", SpanKind.CLIENT, 1.75)
    child.error = "lost"
    body = export_request([root, child], {"service.name": "s"})
    first, second = body["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert first["startTimeUnixNano"] == "1500000000"
    assert first["attributes"][0] == {"key": "n", "value": {"intValue": "2"}}
    assert "parentSpanId" not in first
    assert second["parentSpanId"] == first["spanId"]
    assert second["status"] == {"code": 2, "message": "lost"}
    assert second["endTimeUnixNano"] == second["startTimeUnixNano"]  # not over: no time


def test_what_waits_is_bounded() -> None:
    async def nobody(_sent: object) -> dict[str, object]:
        return {}

    exporter = SpanExporter(ExportSettings("http://c"), nobody)
    for _ in range(MAX_WAITING + 3):
        exporter.take(RequestSpans(Span("r", "a" * 32, "", SpanKind.SERVER, 1.0)))
    assert exporter.dropped == 3
