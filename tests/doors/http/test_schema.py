"""The descriptions of the APIs: complete, and true for whatever they allow and forbid."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from doors.http.peer import Node, node_in_a_thread
from nuncius.doors.http.queue_report.openapi import ENDPOINTS
from nuncius.doors.http.queue_report.report import ReportApi
from nuncius.doors.http.v1.routes import OPERATIONS

EXAMPLES = 12  # an operation
ACCEPTANCE = "positive_data_acceptance"
# Refused because of what is there, not because of what was sent.
OF_STATE = re.compile(r"has no partition|cannot have fewer|was sent before")
FUZZED = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def depends_on_state(response: Any) -> bool:
    return response.status_code in (400, 422) and OF_STATE.search(response.text) is not None


def fuzz(port: int, path: str, left_out: Iterable[str], keep: Callable[[Any], bool] = lambda _: True) -> int:
    """Send what the description at this path allows and what it forbids, and check the answers. Return of how
    many operations."""
    load_all_checks()
    checks: list[Any] = [CHECKS.get_one(name) for name in CHECKS.get_all_names() if name not in left_out]
    assert len(checks) > 5
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{port}{path}")
    schema.config.generation.update(codec="ascii")
    found: list[Any] = [each.ok() for each in schema.get_all_operations()]  # type: ignore[union-attr]
    for operation in filter(keep, found):

        @seed(1)
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=False,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=st.one_of([operation.as_strategy(generation_mode=mode) for mode in GenerationMode]))
        def check(case: schemathesis.Case[Any]) -> None:
            if "wait" in (case.query or {}):
                case.query["wait"] = 0
            if isinstance(case.body, dict) and "wait" in case.body:
                case.body["wait"] = 0
            response = case.call(timeout=20)
            left: list[Any] = [CHECKS.get_one(ACCEPTANCE)] if depends_on_state(response) else []
            case.validate_response(response, checks=checks, excluded_checks=left)

        check()
    return len(found)


@FUZZED
def test_fuzzing(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that the description of /v1 allows are accepted, others refused, and every answer is in it."""
    monkeypatch.chdir(tmp_path)
    with node_in_a_thread(dsn) as port:
        count = fuzz(port, "/v1/openapi.json", (), lambda each: not each.path.endswith("/events"))
    assert count == len(OPERATIONS)


@FUZZED
def test_fuzzing_the_report(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is with the report's API, where every failure is a 400, a method that there is not included."""
    monkeypatch.chdir(tmp_path)
    with node_in_a_thread(dsn) as port:
        left_out = (ACCEPTANCE, "unsupported_method")
        assert fuzz(port, "/openapi.json", left_out) == len(ENDPOINTS)


async def test_the_page(node: Node) -> None:
    """It needs nothing from elsewhere, and shows the description of this node."""
    answer = await node.get("/docs")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    page = answer.content.decode()
    assert "/v1/openapi.json" in page
    assert "http://" not in page
    assert "https://" not in page


async def test_the_description(node: Node) -> None:
    """Every operation has a name, a summary, its parameters, and answers for what can go wrong."""
    described = (await node.get("/v1/openapi.json")).json
    assert described["openapi"] == "3.1.0"
    names = [o["operationId"] for methods in described["paths"].values() for o in methods.values()]
    assert len(set(names)) == len(names) == len(OPERATIONS)
    publish = described["paths"]["/v1/topics/{topic}/messages"]["post"]
    assert publish["summary"] == "Publish a message."
    assert {p["name"] for p in publish["parameters"]} == {"topic", "partition", "Idempotency-Key"}
    assert publish["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/NewMessage")
    assert set(publish["responses"]) == {"201", "400", "403", "404", "409", "413", "415", "422", "503"}
    schemas = described["components"]["schemas"]
    assert "NewMessage" in schemas
    assert schemas["Message"]["properties"]["time"] == {"type": "string", "format": "date-time"}


async def test_constraints(node: Node) -> None:
    """The description says what names, numbers, lists and retention have to be like, and what may be null."""
    described = (await node.get("/v1/openapi.json")).json
    schemas = described["components"]["schemas"]
    name = schemas["NewTopic"]["properties"]["name"]
    assert (name["minLength"], name["maxLength"]) == (1, 255)
    assert all(re.search(name["pattern"], text) for text in ("a", "a b", "ü/%"))
    assert not any(re.search(name["pattern"], text) for text in ("", " a", "a ", "a\nb", "\x00"))
    assert schemas["NewTopic"]["properties"]["partitions"]["maximum"] == 1000
    assert schemas["NewMessages"]["properties"]["messages"]["minItems"] == 1
    assert {"time", "size"} <= {
        each["properties"]["mode"]["const"] for each in schemas["RetentionRule"]["oneOf"]
    }
    raw = described["paths"]["/v1/topics/{topic}/messages/raw"]["post"]
    assert raw["requestBody"]["required"] is False
    for parameter in raw["parameters"]:
        assert "null" not in str(parameter["schema"])
    assert described["paths"]["/v1/topics"]["post"]["requestBody"]["required"] is True


@pytest.mark.parametrize("value", ["null", "Null", ""])
async def test_nothing_is_null_in_a_query(node: Node, value: str) -> None:
    """A parameter that is not given is absent; the word null is no number."""
    answer = await node.post(f"/v1/topics/t/messages?partition={value}", {"body": "x"})
    assert (answer.status, answer.json["error"]) == (400, "invalid")


async def test_the_reports_description(node: Node) -> None:
    """It has every endpoint of the report's API, with its methods."""
    described = (await node.get("/openapi.json")).json
    assert described["openapi"] == "3.1.0"
    for path, methods in described["paths"].items():
        allowed = (await node.call("OPTIONS", path)).headers["allow"].split(", ")
        assert {each.upper() for each in methods} == {*allowed} - {"OPTIONS", "HEAD"}
    assert described["paths"].keys() == {path.decode() for path in ReportApi(node.door.desk).endpoints}
