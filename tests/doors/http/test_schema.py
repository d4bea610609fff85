"""The description of the API: complete, and true for whatever it allows and forbids."""

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks

from doors.http.peer import Node, node_in_a_thread
from nuncius.doors.http.v1 import OPERATIONS

EXAMPLES = 12  # an operation
# What the schema cannot say (a body that is base64, a name without blanks at its ends, one of several fields)
# is refused with a 400, so not everything that fits it is accepted.
LEFT_OUT = {"positive_data_acceptance"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fuzzing(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is sent to any operation, the answer is one that the description mentions."""
    monkeypatch.chdir(tmp_path)
    load_all_checks()
    checks: list[Any] = [CHECKS.get_one(name) for name in CHECKS.get_all_names() if name not in LEFT_OUT]
    with node_in_a_thread(dsn) as port:
        schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/v1/openapi.json")
        assert len(checks) > 5
        found: list[Any] = [each.ok() for each in schema.get_all_operations()]  # type: ignore[union-attr]
        assert len(found) == len(OPERATIONS)
        for operation in found:
            if operation.path.endswith("/events"):
                continue  # it does not end

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
                case.call_and_validate(checks=checks, timeout=20)

            check()


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
    assert set(publish["responses"]) == {"201", "400", "404", "409", "413", "415", "503"}
    schemas = described["components"]["schemas"]
    assert "NewMessage" in schemas
    assert schemas["Message"]["properties"]["time"] == {"type": "string", "format": "date-time"}
