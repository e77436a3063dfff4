#!/usr/bin/env python3
"""A client written from hpz-protocol(7) alone: its example, as it is printed there, and each operation from the page's tables."""
import os
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.protocol import Page  # noqa: E402

MIB = host.MIB
NONE = 2**64 - 1
ANY = {"node": -1, "owner_uid": -1, "owner_gid": -1}


class Client:
    def __init__(self, page):
        self.page, self.last_id = page, 0
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(os.environ["HPZ_SOCKET"])
        self.socket.settimeout(120)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def receive(self):
        message, descriptors, _, _ = socket.recv_fds(self.socket, 1 << 20, 253)
        return message, descriptors

    def say(self, name, **values):
        self.last_id += 1
        self.socket.send(self.page.make_message(name, self.last_id, **values))

    def ask(self, name, **values):
        """(head, reply, what is behind it, descriptors), all as the page has it."""
        self.say(name, **values)
        message, descriptors = self.receive()
        head = self.page.structs["head"].read(message)
        size = self.page.structs["head"].size
        reply = self.page.structs["error" if head["error"] else self.page.operations[name].reply].read(message[size:])
        return head, reply, message[size + reply["size"]:], descriptors

    def read_records(self, data):
        """[(kind, record)]: each says what it is and where the next one begins."""
        kinds = {value: name[len("HPZ_RECORD_"):].lower() for name, value in self.page.constants.items() if name.startswith("HPZ_RECORD_")}
        records = []
        while data:
            kind = kinds[int.from_bytes(data[4:8], "little")]
            one = self.page.structs.get(f"{kind}_record") or self.page.structs[kind]
            records.append((kind, one.read(data)))
            data = data[records[-1][1]["size"]:]
        return records


class Protocol(HpzTest):
    def setUp(self):
        super().setUp()
        self.page = Page()

    def greet(self):
        client = Client(self.page)
        self.addCleanup(client.socket.close)
        head, hello, rest, _ = self.succeed(client, "HELLO", magic=0x315A5048, version=1, compat=1, max_message=196608, max_request=4096,
                                            max_descriptors=253, capabilities=self.page.constants["HPZ_WIRE_CAN_ZEROED"])
        self.assertEqual((head["flags"], hello["version"], rest), (1, 1, b""))
        return client

    def succeed(self, client, name, **values):
        head, reply, rest, descriptors = client.ask(name, **values)
        for descriptor in descriptors:
            self.addCleanup(os.close, descriptor)
        self.assertEqual(reply["size"], self.page.structs[self.page.operations[name].reply].size, name)
        self.assertEqual((head["error"], head["id"], head["op"], head["descriptors"]),
                         (0, client.last_id, self.page.operations[name].number, len(descriptors)), (name, reply))
        return head, reply, rest, descriptors

    def refuse(self, client, name, error, **values):
        head, reply, rest, _ = client.ask(name, **values)
        self.assertEqual((head["error"], rest), (self.page.constants[error], b""), (name, reply))
        return reply

    def test_example(self):
        lease = {}
        with Client(self.page) as client:
            for number, message in enumerate(self.page.example):
                if message.sender == "C":
                    client.socket.send(message.make(lease))
                    continue
                data, descriptors = client.receive()
                for descriptor in descriptors:
                    os.close(descriptor)
                self.assertEqual((message.compare(data, lease), len(descriptors)), ([], message.descriptors), f"message {number}")
        self.assertEqual(len(lease), 8)
        self.assertEqual({message.sender for message in self.page.example}, {"C", "S"})

    def test_lease(self):
        client = self.greet()
        _, leased, rest, descriptors = self.succeed(client, "LEASE", bytes=2 * MIB, label="page", **ANY)
        (kind, segment), = client.read_records(rest)
        self.assertEqual((kind, segment["bytes"], segment["descriptor"], leased["given"], len(descriptors)), ("segment", 2 * MIB, 0, 2 * MIB, 1))
        self.assertGreaterEqual(os.fstat(descriptors[0]).st_size, 2 * MIB)
        # Not before it is confirmed.
        self.refuse(client, "LEASE", "HPZ_ERR_BUSY", bytes=2 * MIB, **ANY)
        client.say("ACK", id=leased["id"])
        flags = sum(self.page.constants[f"HPZ_WIRE_LIST_{name}"] for name in ("MORE", "RESERVED", "KEYS"))
        _, listed, rest, _ = self.succeed(client, "LIST", flags=flags)
        records = client.read_records(rest)
        self.assertEqual(listed["records"], len(records))
        ours = next(record for kind, record in records if kind == "lease" and record["id"] == leased["id"])
        self.assertEqual((ours["label"], ours["state"], ours["pid"], ours["segments"]),
                         ("page", self.page.constants["HPZ_STATE_LEASED"], os.getpid(), 1))
        _, changed, rest, _ = self.succeed(client, "CHANGE", id=leased["id"], known=1, bytes=4 * MIB)
        (kind, segment), = client.read_records(rest)
        self.assertEqual((changed["given"], changed["total"], kind, segment["bytes"]), (4 * MIB, 2, "segment", 2 * MIB))
        client.say("ACK", id=leased["id"])
        _, adopted, rest, descriptors = self.succeed(client, "ADOPT", id=leased["id"])
        self.assertEqual((adopted["segments"], len(descriptors), len(client.read_records(rest))), (2, 2, 2))
        client.say("ACK", id=leased["id"])
        _, released, _, _ = self.succeed(client, "RELEASE", id=leased["id"])
        self.assertEqual(released["state"], self.page.constants["HPZ_STATE_RETURNING"])
        self.refuse(client, "RELEASE", "HPZ_ERR_UNKNOWN_LEASE", id=1)

    def test_cells_and_bulk(self):
        client = self.greet()
        node = {"node": 0, "bytes": 2 * MIB}
        _, leased, rest, _ = self.succeed(client, "LEASE", bytes=4 * MIB, cells=2, cell=[node, node], **ANY)
        self.assertEqual(len(client.read_records(rest)), leased["segments"])
        client.say("ACK", id=leased["id"])
        _, first, rest, descriptors = self.succeed(client, "LEASE", bytes=2 * MIB, count=3, **ANY)
        self.assertEqual((len(descriptors), first["segments"]), (3, 1))
        # Each has its segment behind it.
        second = self.page.structs["leased"].read(rest[self.page.structs["segment"].read(rest)["size"]:])
        self.assertEqual(second["id"], first["id"] + 1)
        client.say("ACK", id=first["id"], count=3)
        for lease in (leased["id"], first["id"], first["id"] + 1, first["id"] + 2):
            self.succeed(client, "RELEASE", id=lease)

    def test_plan_and_reserve(self):
        client = self.greet()
        _, planned, _, _ = self.succeed(client, "PLAN", bytes=2 * MIB, **ANY)
        self.assertEqual((planned["given"], planned["page_size"]), (2 * MIB, 2 * MIB))
        _, reserved, _, _ = self.succeed(client, "RESERVE", bytes=2 * MIB, ttl_ms=60000, **ANY)
        self.assertEqual((reserved["given"], reserved["pool"]), (2 * MIB, planned["pool"]))
        self.succeed(client, "UNRESERVE", id=reserved["id"])

    def test_status(self):
        client = self.greet()
        _, status, rest, _ = self.succeed(client, "STATUS")
        pools = [record for kind, record in client.read_records(rest) if kind == "pool"]
        self.assertEqual((status["pools"], status["connections"] >= 1), (len(pools), True))
        self.assertEqual(pools[0]["clean"], pools[0]["total"])
        self.succeed(client, "WAIT", timeout_ms=60000, pool=pools[0]["name"])
        _, clearing, rest, _ = self.succeed(client, "CLEARING")
        kinds = [kind for kind, _ in client.read_records(rest)]
        self.assertEqual([kinds.count(kind) for kind in ("rule", "node", "method")],
                         [clearing["rules"], clearing["nodes"], clearing["methods"]])
        self.succeed(client, "SET", key="rate", value="none")
        self.refuse(client, "SET", "HPZ_ERR_INVALID", key="rate", value="fast")
        _, resized, _, _ = self.succeed(client, "RESIZE", pool=pools[0]["name"], pages=pools[0]["target"],
                                        kind=self.page.constants["HPZ_RESIZE_TO"])
        self.assertEqual(resized["target"], pools[0]["target"])
        _, checked, rest, _ = self.succeed(client, "CHECK", timeout_ms=60000)
        self.assertEqual(checked["records"], len(client.read_records(rest)))
        _, verified, _, _ = self.succeed(client, "VERIFY", timeout_ms=60000)
        self.assertEqual((verified["pages"], verified["hits"]), (pools[0]["clean"], 0))
        self.succeed(client, "CALIBRATE", timeout_ms=60000)  # of no pool, where none has a page to spare
        _, demanded, rest, _ = self.succeed(client, "DEMAND")
        self.assertEqual(demanded["records"], len(client.read_records(rest)))
        for kind in ("TEARDOWN", "HISTOGRAM", "FACT"):
            _, torn_down, rest, _ = self.succeed(client, "TEARDOWN", record=self.page.constants[f"HPZ_RECORD_{kind}"])
            self.assertEqual({kind for kind, _ in client.read_records(rest)} <= {kind.lower()}, True)
            self.assertLess(torn_down["now_ns"], NONE)

    def test_growth(self):
        """What the page says of structs that are longer and shorter than hpzd knows them."""
        client = self.greet()
        head, release = self.page.structs["head"], self.page.structs["release"]

        def ask(payload):
            client.last_id += 1
            client.socket.send(head.make(size=head.size + len(payload), op=self.page.operations["RELEASE"].number, id=client.last_id) + payload)
            return head.read(client.receive()[0])["error"]

        self.assertEqual(ask(release.make(id=1, size=release.size + 8) + bytes(8)), self.page.constants["HPZ_ERR_UNKNOWN_LEASE"])
        self.assertEqual(ask(release.make(id=1, size=release.size + 8) + b"\0\0\0\0\0\0\0\1"), self.page.constants["HPZ_ERR_UNSUPPORTED"])
        self.assertEqual(ask(release.make(id=1, size=release.size - 8)[:release.size - 8]), self.page.constants["HPZ_ERR_PROTOCOL"])
        # An operation nobody knows; the connection goes on.
        client.socket.send(head.make(size=head.size + 8, op=999, id=7) + (8).to_bytes(8, "little"))
        self.assertEqual(head.read(client.receive()[0])["error"], self.page.constants["HPZ_ERR_UNSUPPORTED"])
        # What is no message at all; it does not.
        client.socket.send(head.make(size=head.size + 9, op=2, id=8) + (8).to_bytes(8, "little"))
        self.assertEqual(head.read(client.receive()[0])["error"], self.page.constants["HPZ_ERR_PROTOCOL"])
        self.assertEqual(client.receive()[0], b"")


if __name__ == "__main__":
    main("--2m", "32", "--stock", "2M*rest")
