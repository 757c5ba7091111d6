from prfaas.routing import Bandwidth, LinkControl, LinkLimits, LinkRule, LinkSignal

CALM = LinkSignal(utilisation=0.2, backlog_s=0.0)
FULL = LinkSignal(utilisation=0.98, backlog_s=2.5)
DOWN = LinkSignal(utilisation=0.0, backlog_s=9.0, up=False)


def test_a_calm_link_is_open_and_abundant() -> None:
    assert LinkControl().on_signal(CALM) == LinkRule(Bandwidth.ABUNDANT, 1.0)


def test_a_filling_link_raises_the_threshold_step_by_step_to_a_limit() -> None:
    control = LinkControl()
    factors = [control.on_signal(FULL).threshold_factor for _ in range(20)]
    assert factors[0] == LinkLimits().raise_by
    assert factors == sorted(factors)
    assert factors[-1] == LinkLimits().max_factor
    assert control.rule.bandwidth is Bandwidth.SCARCE


def test_an_outage_or_a_surge_of_loss_closes_the_link_at_once() -> None:
    for signal in (DOWN, LinkSignal(utilisation=0.3, backlog_s=0.0, loss=0.2)):
        assert LinkControl().on_signal(signal).closed


def test_after_an_outage_offloads_come_back_slowly() -> None:
    control = LinkControl()
    control.on_signal(DOWN)
    factors = []
    while not factors or factors[-1] > 1:
        rule = control.on_signal(CALM)
        assert not rule.closed
        factors.append(rule.threshold_factor)
    assert factors[0] > 7
    assert factors == sorted(factors, reverse=True)
    assert len(factors) > 20


def test_between_calm_and_alarm_nothing_changes() -> None:
    control = LinkControl()
    raised = control.on_signal(FULL)
    middle = LinkSignal(utilisation=0.8, backlog_s=1.0)
    assert control.on_signal(middle) == raised._replace(wait_s=1.0)
    calm = LinkControl()
    calm.on_signal(CALM)
    assert calm.on_signal(LinkSignal(0.45, 0.0)).bandwidth is Bandwidth.ABUNDANT
    assert calm.on_signal(LinkSignal(0.60, 0.0)).bandwidth is Bandwidth.SCARCE
    assert calm.on_signal(LinkSignal(0.45, 0.0)).bandwidth is Bandwidth.SCARCE


def periods_closed(control: LinkControl) -> int:
    """Break the link once, and return how many calm periods it then stays closed."""
    assert control.on_signal(DOWN).closed
    count = 0
    while control.on_signal(CALM).closed:
        count += 1
    return count


def test_a_link_that_breaks_again_and_again_is_tried_less_and_less() -> None:
    control = LinkControl()
    counts = [periods_closed(control) for _ in range(9)]
    assert counts == [0, 1, 3, 7, 15, 31, 63, 63, 63]
    while control.rule.threshold_factor > 1:
        control.on_signal(CALM)
    assert periods_closed(control) == 0


def test_a_link_that_nothing_is_known_of_is_open_and_not_abundant() -> None:
    control = LinkControl()
    assert control.on_signal(None) == LinkRule(Bandwidth.SCARCE, 1.0)
    control.on_signal(DOWN)
    first, second = control.on_signal(None), control.on_signal(None)
    assert not first.closed
    assert 1 < second.threshold_factor < first.threshold_factor


def test_the_effective_threshold_is_infinite_behind_a_closed_link() -> None:
    assert LinkRule(threshold_factor=2.0).effective_tokens(100) == 200
    assert LinkRule(closed=True).effective_tokens(100) == float("inf")


def test_the_threshold_rises_no_further_while_the_backlog_falls() -> None:
    control = LinkControl()
    raised = control.on_signal(FULL).threshold_factor
    assert control.on_signal(FULL._replace(backlog_s=2.4)).threshold_factor == raised
    assert control.on_signal(FULL._replace(backlog_s=2.6)).threshold_factor > raised


def test_where_the_link_was_full_the_threshold_comes_down_in_small_steps() -> None:
    control = LinkControl()
    full = control.on_signal(FULL).threshold_factor
    assert control.on_signal(CALM).threshold_factor == full / LinkLimits().probe_by
    while control.rule.threshold_factor > 1:
        control.on_signal(CALM)
    control.on_signal(DOWN)
    assert control.on_signal(CALM).threshold_factor == 8 / LinkLimits().lower_by
