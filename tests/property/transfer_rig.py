"""Two machines joined by lanes that a test delivers, kills, damages and delays at will."""

from dataclasses import replace

import xxhash
from transfer_world import ADDRESS, LAYOUT, TIMEOUT_S, RigLane, RigRoom, RigWorld

from prfaas.errors import ProtocolError, TransferError
from prfaas.transfer import RoomFailed
from prfaas.transfer.send_room import ChunkOut
from prfaas.wire import Chunk, Priority


class Rig(RigWorld):
    """Every method is one step; steps that are impossible at the moment do nothing."""

    # Steps

    def open_room(self, size: int) -> None:
        sizes = (size % 9, size % 2, 1)
        if any(len(f) < n for f, n in zip(self.free, sizes, strict=True)):
            return
        if any(len(f) < n for f, n in zip(self.source_free, sizes, strict=True)):
            return
        names = [g.name for g in LAYOUT.groups]
        grants = {n: self._take(self.free, i, sizes[i]) for i, n in enumerate(names)}
        source = {n: self._take(self.source_free, i, sizes[i]) for i, n in enumerate(names)}
        self._next += 1
        room = self.rooms[self._next] = RigRoom(self._next, source, grants)
        room.expected = [
            [entry[source[names[i]]].copy() for entry in group]
            for i, group in enumerate(self.source)
        ]
        self.receiver.open_room(
            room.room,
            address=ADDRESS,
            grants=grants,
            prefix_tokens=0,
            now=self.now,
            priority=Priority(size // 9 % 2),
        )
        self.settle()

    def submit(self, pick: int) -> None:
        room = self._pick(pick)
        if room is None or not room.opened or room.finished:
            return
        for name, items in room.source.items():
            start = room.submitted.get(name, 0)
            if start < items.size:
                part = items[start : start + 1 + pick % 4]
                try:
                    self._submit_part(room, name, start, part, is_whole=pick % 3 == 0)
                except TransferError:
                    assert room.sent is not None
                    return
                room.submitted[name] = start + part.size
                return
        try:
            totals = {n: i.size for n, i in room.source.items()}
            self.sender.finish(room.room, totals)
        except TransferError:
            assert room.sent is not None
        room.finished = True
        self.settle()

    def mark_ready(self, pick: int) -> None:
        room = self._pick(pick)
        if room is not None and room.unready:
            token = list(room.unready)[pick % len(room.unready)]
            del room.unready[token]
            self.sender.mark_ready(room.room, token)

    def sender_pulls(self, pick: int) -> None:
        lane = self._lane(pick)
        if lane is None or not lane.sender_up:
            return
        out = self.sender.next_frame(lane.number)
        if isinstance(out, ChunkOut):
            entry = self.source[out.frame.group][out.frame.entry]
            self._check_ready(out.frame)
            data = entry[out.items].tobytes()
            frame = out.frame
            if self.sender.wants_digest(lane.number):
                frame = replace(frame, digest=xxhash.xxh3_64_intdigest(data))
            self._through_bytes(frame)
            lane.to_receiver.append((frame, data))
        elif out is not None:
            lane.to_receiver.append((self._through_bytes(out), b""))

    def receiver_pulls(self, pick: int) -> None:
        lane = self._lane(pick)
        if lane is None or not lane.receiver_up:
            return
        frame = self.receiver.next_frame(lane.number)
        if frame is not None:
            lane.to_sender.append(self._through_bytes(frame))

    def sender_reads(self, pick: int) -> None:
        lane = self._lane(pick)
        if lane is not None and lane.sender_up and lane.to_sender:
            try:
                self.sender.receive(lane.number, lane.to_sender.popleft(), self.now)
            except ProtocolError as error:
                self.errors.append(error)
                lane.sender_up = False
                self.sender.lane_closed(lane.number, "protocol_error")
            self.settle()

    def receiver_reads(self, pick: int) -> None:
        """Read a frame, or half of a payload, or its other half."""
        lane = self._lane(pick)
        if lane is None or not lane.receiver_up:
            return
        if lane.half_read is not None:
            chunk, data = lane.half_read
            lane.half_read = None
            self._write(lane, chunk, data, second_half=True)
            self._payload_done(lane, data)
        elif lane.to_receiver:
            frame, data = lane.to_receiver.popleft()
            try:
                self.receiver.receive(lane.number, frame)
            except ProtocolError as error:
                self._fail_at_receiver(lane, error)
            if isinstance(frame, Chunk) and lane.receiver_up:
                self._write(lane, frame, data, second_half=False)
                lane.half_read = (frame, data)
        self.settle()

    def kill_at_sender(self, pick: int) -> None:
        lane = self._lane(pick)
        if lane is not None and lane.sender_up:
            lane.sender_up = False
            self.sender.lane_closed(lane.number, "reset")
            self.settle()

    def kill_at_receiver(self, pick: int) -> None:
        lane = self._lane(pick)
        if lane is not None and lane.receiver_up:
            lane.receiver_up = False
            self.receiver.lane_closed(lane.number, "reset", self.now)
            self.settle()

    def abort_at_sender(self, pick: int) -> None:
        room = self._pick(pick)
        if room is not None:
            self.sender.abort(room.room, "sender_abort", "", self.now)
            self.settle()

    def abort_at_receiver(self, pick: int) -> None:
        room = self._pick(pick)
        if room is not None:
            self.receiver.abort(room.room, "receiver_abort", "")
            self.settle()

    def damage(self, pick: int) -> None:
        """Flip a bit of a payload on its way."""
        lane = self._lane(pick)
        if lane is None or not any(data for _, data in lane.to_receiver):
            return
        found = [i for i, (_, data) in enumerate(lane.to_receiver) if data]
        frame, data = lane.to_receiver[found[pick % len(found)]]
        flipped = bytes([data[0] ^ 1]) + data[1:]
        lane.to_receiver[found[pick % len(found)]] = (frame, flipped)

    def duplicate_to_receiver(self, pick: int) -> None:
        """Have a frame arrive once more, on any lane."""
        lane, other = self._lane(pick), self._lane(pick // 3)
        if lane is not None and other is not None and lane.to_receiver and other.to_receiver:
            other.to_receiver.append(lane.to_receiver[pick % len(lane.to_receiver)])

    def duplicate_to_sender(self, pick: int) -> None:
        lane, other = self._lane(pick), self._lane(pick // 3)
        if lane is not None and other is not None and lane.to_sender and other.to_sender:
            other.to_sender.append(lane.to_sender[pick % len(lane.to_sender)])

    def restart_sender(self, pick: int) -> None:
        """The process ends without a word and another one takes its address."""
        for room in self.rooms.values():
            if room.sent is None and room.opened:
                self._end_source(room, RoomFailed(room.room, "restarted", ""))
        for lane in self.lanes.values():
            lane.sender_up = False
        self.sender = self._new_sender()

    def restart_receiver(self, pick: int) -> None:
        for room in self.rooms.values():
            if room.received is None:
                self._end_destination(room, RoomFailed(room.room, "restarted", ""))
        for lane in self.lanes.values():
            lane.receiver_up = False
        self.receiver = self._new_receiver()

    def wait(self, pick: int) -> None:
        self.now += 0.01 * pick
        self.tick()

    def tick(self) -> None:
        for address, number in self.receiver.take_dials(self.now):
            self._next += 1
            self.receiver.lane_dialing(self._next, address, number)
            self.sender.lane_opened(self._next)
            self.lanes[self._next] = RigLane(self._next)
        self.receiver.on_timer(self.now)
        self.sender.on_timer(self.now)
        self.settle()

    def flow(self, pick: int) -> None:
        """Move every lane on by a few steps, so that short scripts get far."""
        self.tick()
        for step in range(1 + pick % 5):
            for index in range(len(self._alive())):
                self.sender_pulls(index)
                self.receiver_reads(index)
                if step % 2:
                    self.receiver_pulls(index)
                    self.sender_reads(index)

    def drain(self) -> None:
        """Notice every death, deliver everything, then let all deadlines pass."""
        for wait_s in (0.0, 5.0, 2 * TIMEOUT_S, 1.0):
            self.now += wait_s
            self.tick()
            for _ in range(3000):
                if not self._deliver_all():
                    break
            else:
                raise AssertionError("the machines talk for ever")

    # Inside

    def _deliver_all(self) -> bool:
        moved = False
        for number, lane in list(self.lanes.items()):
            if lane.sender_up != lane.receiver_up:
                index = [x.number for x in self._alive()].index(number)
                (self.kill_at_sender if lane.sender_up else self.kill_at_receiver)(index)
                moved = True
            if not (lane.sender_up or lane.receiver_up):
                self.lanes.pop(number)
                moved = True
                continue
            index = [x.number for x in self._alive()].index(number)
            self.sender_pulls(index)
            self.receiver_pulls(index)
            if lane.to_sender or lane.to_receiver or lane.half_read:
                moved = True
            self.sender_reads(index)
            if lane.sender_up and lane.receiver_up:
                self.receiver_reads(index)
        return moved
