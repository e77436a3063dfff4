"""hpz's wire as a stranger would write it: enough of lib/proto.h to send messages, well-formed or not."""
import os
import socket
import struct

HELLO, STATUS, LEASE, ACK, RELEASE, ADOPT, LIST, WAIT, DRAIN = range(1, 10)
SET, CLEARING = 12, 14
RESERVE, UNRESERVE = 17, 18
REPLY = 1
MAGIC = 0x315A5048
HEAD = struct.Struct("<IHHQII")  # size op flags id error descriptors


def make_message(op, payload=b"", request_id=1, flags=0, size=None, error=0, descriptors=0):
    return HEAD.pack(HEAD.size + len(payload) if size is None else size, op, flags, request_id, error, descriptors) + payload


def make_hello(magic=MAGIC, version=1, compat=1, capabilities=0):
    payload = struct.pack("<IIHHIQIIII64s", 104, magic, version, compat, 0, capabilities, 196608, 4096, 253, 0, b"stranger")
    return make_message(HELLO, payload)


def make_empty(op):
    return make_message(op, struct.pack("<II", 8, 0), request_id=2)


def make_lease(size, page_size=0, node=-1, flags=0, deliver=0, timeout_ms=0, label=b"", key=b"", request_id=3, count=0, op=LEASE,
               priority=0, ttl_ms=0, reservation=0):
    payload = struct.pack("<IIQQiIIIqqqiIq128s128sIiQQIIQ", 376, flags, size, page_size, node, deliver, 0, 0, timeout_ms, -1, -1,
                          0, 0, 0, label, key, count, priority, ttl_ms, reservation, 0, 0, 0)
    return make_message(op, payload, request_id=request_id)


def make_ack(lease, count=0):
    return make_message(ACK, struct.pack("<IIQ", 16, count, lease), request_id=4)


def make_release(lease, flags=0, timeout_ms=0):
    return make_message(RELEASE, struct.pack("<IIQq", 24, flags, lease, timeout_ms), request_id=5)


class Stranger:
    """A raw connection."""

    def __init__(self, hello=True, path=None):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Waits its turn when many come at once; with a time limit it would be refused.
        self.socket.connect(str(path or os.environ["HPZ_SOCKET"]))
        self.socket.settimeout(30)
        if hello:
            self.send(make_hello())
            head, _ = self.receive()
            assert head["error"] == 0, head

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, message):
        self.socket.send(message)

    def receive(self):
        """(head, payload), or (None, b"") when the server has closed."""
        try:
            message = self.socket.recv(1 << 20)
        except ConnectionError:
            message = b""
        if len(message) < HEAD.size:
            return None, b""
        size, op, flags, request_id, error, descriptors = HEAD.unpack_from(message)
        head = {"size": size, "op": op, "flags": flags, "id": request_id, "error": error, "descriptors": descriptors}
        return head, message[HEAD.size:]

    def close(self):
        self.socket.close()


LEASED, SEGMENT = struct.Struct("<IIQQQQIIQ"), struct.Struct("<IIQQQii256s")
CAN_ZEROED = 1


class WireError(Exception):
    """hpzd refuses."""

    def __init__(self, error, text):
        super().__init__(f"error {error}: {text}")
        self.error = error


class Held:
    """A lease in our hands: `segments` are pairs of bytes and descriptor."""

    def __init__(self, payload, descriptors):
        _, count, self.id, self.asked, self.size, self.ready, _, _, self.zeroed = LEASED.unpack_from(payload)
        records, at = [], struct.unpack_from("<I", payload)[0]
        for _ in range(count):  # each says how long it is: later ones are longer
            records.append(SEGMENT.unpack_from(payload, at))
            at += records[-1][0]
        self.segments = [(record[3], descriptors[record[6]]) for record in records]

    def close(self):
        for _, descriptor in self.segments:
            os.close(descriptor)
        self.segments = []


class Tenant(Stranger):
    """A client in this very process: thousands of leases without a process for each."""

    def __init__(self, path=None, limit=120):
        super().__init__(hello=False, path=path)
        self.socket.settimeout(limit)
        self.send(make_hello(capabilities=CAN_ZEROED))
        self.receive()

    def _receive_all(self):
        message, descriptors, _, _ = socket.recv_fds(self.socket, 1 << 20, 253)
        if len(message) < HEAD.size:
            raise ConnectionError("hpzd has closed the connection")
        return HEAD.unpack_from(message)[4], message[HEAD.size:], descriptors

    def _raise(self, error, payload):
        raise WireError(error, payload[8:].rstrip(b"\0").decode(errors="replace"))

    def lease(self, size, **options):
        self.send(make_lease(size, **options))
        error, payload, descriptors = self._receive_all()
        if error:
            self._raise(error, payload)
        held = Held(payload, descriptors)
        self.send(make_ack(held.id))
        return held

    def release(self, lease):
        self.send(make_release(lease))
        error, payload, _ = self._receive_all()
        if error:
            self._raise(error, payload)
