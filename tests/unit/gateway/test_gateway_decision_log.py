from prfaas.reasons import Reason
from prfaas.routing import Refusal
from prfaas_gateway.decision_log import DecisionLog


def test_the_log_keeps_the_last_ones_only() -> None:
    log = DecisionLog(limit=3)
    for number in range(10):
        log.note(
            Refusal(Reason.NO_DECODE if number % 2 else Reason.NO_PREFILL),
            request_id=str(number),
            attempt=1,
            prompt_tokens=number,
            residency="",
            threshold_tokens=5,
            effective_tokens={"a": None},
        )
    assert [one["request_id"] for one in log.recent(100)] == ["9", "8", "7"]
    assert [one["request_id"] for one in log.recent(1)] == ["9"]
    assert [one["request_id"] for one in log.recent(9, reason=Reason.NO_PREFILL)] == ["8"]
