from prfaas.routing import Quarantine


def test_each_failure_in_a_row_doubles_the_time_to_a_limit() -> None:
    quarantine, now, lengths = Quarantine(), 0.0, []
    for _ in range(6):
        quarantine.add("n", "s", now)
        until = quarantine.until_s("n", "s")
        lengths.append(until - now)
        now = until
    assert lengths == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_legs_that_fail_together_count_once() -> None:
    quarantine = Quarantine()
    for _ in range(5):
        quarantine.add("n", "s", 0.5)
    assert quarantine.until_s("n", "s") == 1.5


def test_an_answer_or_a_new_session_frees() -> None:
    quarantine = Quarantine()
    quarantine.add("n", "s", 0.0)
    assert quarantine.until_s("n", "s2") == 0.0
    assert quarantine.until_s("other", "s") == 0.0
    quarantine.clear("n")
    assert quarantine.until_s("n", "s") == 0.0
    quarantine.add("n", "s", 5.0)
    assert quarantine.until_s("n", "s") == 6.0


def test_a_new_session_starts_at_the_first_length() -> None:
    quarantine = Quarantine()
    quarantine.add("n", "s", 0.0)
    quarantine.add("n", "s", 1.0)
    quarantine.add("n", "s2", 2.0)
    assert quarantine.until_s("n", "s2") == 3.0


def test_nodes_that_are_gone_are_forgotten() -> None:
    quarantine = Quarantine()
    quarantine.add("n", "s", 0.0)
    quarantine.retain(frozenset({"m"}))
    assert quarantine.until_s("n", "s") == 0.0
