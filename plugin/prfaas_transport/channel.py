"""How a lane's bytes pass through its socket: as they are, or through what wraps the socket."""

import socket
from typing import Protocol


class Channel(Protocol):
    """The bytes of one connected, non-blocking socket. Only one thread at a time uses it.

    A channel that changes the bytes (encrypts them) may hold some back: what `send` counted as
    taken is the channel's from then on, and the memory behind it is not read again.
    """

    def fileno(self) -> int:
        """Return the socket's descriptor, to wait on."""
        ...

    def handshake(self, now: float) -> bool:
        """Take the handshake as far as it goes; return whether `send` may be called.

        Asked once the connection stands, and after every readiness of the socket until True.
        Raises: OSError if the peer is refused or refuses us; the lane is then closed.
        """
        ...

    def check_node_id(self, node_id: str) -> None:
        """Check that the peer may call itself so, as it does in HELLO or WELCOME.

        Raises: OSError if it proved to be somebody else; the lane is then closed.
        """
        ...

    def outdated(self, now: float) -> str:
        """Return why the connection is to be dialled anew, empty if it is not."""
        ...

    def wants_write(self) -> bool:
        """Say whether the channel holds bytes that the socket did not take; `send([])` flushes."""
        ...

    def send(self, views: list[memoryview]) -> int:
        """Take bytes, in order; return how many. Raises: BlockingIOError if none; OSError."""
        ...

    def receive_into(self, views: list[memoryview]) -> int:
        """Fill the views, in order; return how many bytes, 0 if the peer closed.

        Raises: BlockingIOError if there are none; OSError.
        """
        ...

    def pending(self) -> bool:
        """Say whether `receive_into` has bytes that the socket no longer has (no readiness)."""
        ...

    def close(self) -> None:
        """Close the socket."""
        ...


class ChannelFactory(Protocol):
    """Makes the channels of a node, for dialled (`server_side` False) and accepted sockets."""

    def wrap(self, sock: socket.socket, *, server_side: bool) -> Channel:
        """Return the channel that from now on owns `sock`. Raises: OSError."""
        ...


class PlainChannel:
    """The socket itself; system calls on the views, nothing copied."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.fileno = sock.fileno
        self.close = sock.close
        self.send = sock.sendmsg

    def handshake(self, now: float) -> bool:  # noqa: ARG002 - Channel
        """Return True: there is none."""
        return True

    def check_node_id(self, node_id: str) -> None:
        """Believe it."""

    def outdated(self, now: float) -> str:  # noqa: ARG002 - Channel
        """Return nothing: it does not age."""
        return ""

    def wants_write(self) -> bool:
        """Return False: nothing is held."""
        return False

    def receive_into(self, views: list[memoryview]) -> int:
        """Fill the views from the socket."""
        return self._sock.recvmsg_into(views)[0]

    def pending(self) -> bool:
        """Return False: nothing is held."""
        return False


class PlainChannels:
    """Lanes without protection."""

    def wrap(self, sock: socket.socket, *, server_side: bool) -> Channel:  # noqa: ARG002
        """Return the socket's bytes as they are."""
        return PlainChannel(sock)
