"""How rooms fare whose link or peer goes."""

import time
from typing import Any

from contenders import closing
from endpoints import Endpoint, lanes_pair
from pages import LAYERS, PAGE_BYTES, PAGES
from paths import LOSS_TOLERANT, NetworkPath
from rows import Rows

import prfaas_netem

LIVENESS_S = 2.0


def cut_link(rows: Rows, case: str, path: NetworkPath, repeats: int, cut_s: float = 3.0) -> None:
    """Drop every packet for a while; time from its return until bytes flow again."""
    flows_s, resent, arrived, in_kernel = [], [], [], []
    for _ in range(repeats):
        config = {"lanes": 8, "liveness_s": 5.0, "congestion_control": LOSS_TOLERANT}
        send, receive = lanes_pair(path.namespaces, path.hosts, config)
        with closing(send), closing(receive):
            time.sleep(1.5)  # the lanes' warm-up is over
            before, sent = _received(receive.ask("stats")), _sent(send)
            receive.ask("open", pages=PAGES)
            receive.put("progress", seconds=cut_s + 2.5, step_s=0.01)
            time.sleep(0.6)
            _set_loss(path, 1.0)
            time.sleep(cut_s)
            _set_loss(path, 0.0)
            back_s = time.time()
            flows_s.append(_flows_again_s(receive.answer()["marks"], back_s))
            after = _received(receive.ask("wait"))
            now_sent = _sent(send)
        room_bytes = PAGES * LAYERS * PAGE_BYTES
        arrived.append(after - before - room_bytes)
        resent.append(now_sent[0] - sent[0])
        in_kernel.append(now_sent[1] - sent[1])
    rows.spread(case, "lanes", "flowing again after", flows_s, "s")
    rows.spread(case, "lanes", "bytes resent that had arrived", arrived, "bytes")
    rows.spread(case, "lanes", "chunks resent", resent, "1")
    rows.spread(case, "kernel", "bytes resent (TCP)", in_kernel, "bytes")


def _set_loss(path: NetworkPath, loss: float) -> None:
    assert path.control is not None
    assert path.topology is not None
    prfaas_netem.set_link(path.control, path.topology.link.merged({"loss": loss}))


def _flows_again_s(marks: list[list[float]], back_s: float) -> float:
    held = max((count for at_s, count in marks if at_s <= back_s), default=0)
    return next((at_s - back_s for at_s, n in marks if at_s > back_s and n > held), float("inf"))


def _received(answer: dict[str, Any]) -> int:
    return answer["stats"]["payload_bytes_received_total"]


def _sent(send: Endpoint) -> tuple[int, int]:
    stats = send.ask("stats")["stats"]
    in_kernel = sum(lane["tcp"].get("bytes_retrans", 0) for lane in stats["lanes"])
    return stats["chunks_resent_total"], in_kernel


def lost_receiver(
    rows: Rows, case: str, path: NetworkPath, repeats: int, *, is_killed: bool
) -> None:
    """Kill the receiver's process in the middle of a room, or let nothing pass any more."""
    config = {"lanes": 8} if is_killed else {"lanes": 8, "liveness_s": LIVENESS_S}
    after_s = []
    for _ in range(repeats):
        send, receive = lanes_pair(path.namespaces, path.hosts, config)
        with closing(send), closing(receive):
            time.sleep(1.0)
            receive.ask("open", pages=PAGES)
            time.sleep(0.5)
            gone_s = time.time()
            if is_killed:
                receive.process.kill()
            else:
                _set_loss(path, 1.0)
            ended = send.ask("ended", within_s=30)
            _set_loss(path, 0.0)
        after_s.append(ended["at_s"] - gone_s)
    rows.spread(case, "lanes", "room failed on the sender after", after_s, "s")
