from prfaas.records import NodeRecord, Role
from prfaas.transfer.node_signals import NodeSignals
from prfaas.transfer.signals import PeerSignals
from prfaas_gateway.signal_book import SignalBook

NODES = {
    name: NodeRecord(name, role, name[0], "http://x", "s")
    for name, role in (
        ("a-prefill-0", Role.PREFILL),
        ("a-prefill-1", Role.PREFILL),
        ("b-prefill-0", Role.PREFILL),
        ("b-decode-0", Role.DECODE),
        ("b-decode-1", Role.DECODE),
        ("c-decode-0", Role.DECODE),
    )
}


def signals(**values: float) -> PeerSignals:
    return PeerSignals(**values)  # type: ignore[arg-type]


def noted(**by_node: dict[str, PeerSignals]) -> SignalBook:
    book = SignalBook()
    for name, peers in by_node.items():
        node = name.replace("_", "-")
        book.note(node, NodeSignals(node, 0.1, peers), 10.0)
    return book


def test_the_fullest_path_speaks_for_the_link_and_only_paths_to_us_count() -> None:
    book = noted(
        a_prefill_0={
            "b-decode-0/0": signals(utilisation=0.3, backlog_s=2.0, delivery_bytes_per_s=5.0),
            "c-decode-0/0": signals(utilisation=1.0, backlog_s=9.0, delivery_bytes_per_s=100.0),
            "nobody/0": signals(utilisation=1.0),
        },
        a_prefill_1={
            "b-decode-1/0": signals(
                utilisation=0.8,
                loss_share=0.02,
                delivery_bytes_per_s=7.0,
                available_bytes_per_s=50.0,
            )
        },
        b_prefill_0={"b-decode-0/0": signals(utilisation=1.0)},
    )
    links = book.links(NODES, region="b", now_s=10.2)
    assert list(links) == ["a"]
    link = links["a"]
    assert link.signal is not None
    assert (link.signal.utilisation, link.signal.backlog_s, link.signal.loss) == (0.8, 2.0, 0.02)
    assert (link.num_paths, link.delivery_bytes_per_s, link.available_bytes_per_s) == (2, 12.0, 50)
    assert not link.is_stale
    assert link.age_s is not None
    assert abs(link.age_s - 0.3) < 1e-9


def test_a_dead_peer_is_not_a_dead_link_but_all_dead_are() -> None:
    down = signals(is_up=False, backlog_s=60.0)
    book = noted(
        a_prefill_0={"b-decode-0/0": down, "b-decode-1/0": signals(backlog_s=0.5)}, a_prefill_1={}
    )
    link = book.links(NODES, region="b", now_s=10.0)["a"]
    assert link.signal is not None
    assert (link.signal.up, link.signal.backlog_s) == (True, 0.5)
    book = noted(a_prefill_0={"b-decode-0/0": down}, a_prefill_1={"b-decode-0/0": down})
    link = book.links(NODES, region="b", now_s=10.0)["a"]
    assert link.signal is not None
    assert not link.signal.up


def test_old_missing_and_forgotten_views_make_a_link_stale() -> None:
    peers = {"b-decode-0/0": signals()}
    book = noted(a_prefill_0=peers, a_prefill_1=peers)
    assert not book.links(NODES, region="b", now_s=11.8)["a"].is_stale
    assert book.links(NODES, region="b", now_s=12.0)["a"].is_stale
    assert noted(a_prefill_0=peers).links(NODES, region="b", now_s=10.0)["a"].is_stale
    book.note("a-prefill-1", NodeSignals("a-prefill-1", None, {}), 10.0)
    assert book.links(NODES, region="b", now_s=10.0)["a"].is_stale
    book.retain(["a-prefill-1"])
    assert book.age_s("a-prefill-0", 10.0) is None
    link = book.links(NODES, region="b", now_s=10.0)["a"]
    assert (link.signal, link.num_paths, link.is_stale) == (None, 0, True)
