#!/usr/bin/env python3
"""Metrics: what is printed is what the page says, moves as it should, and is served over HTTP whatever others do."""
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import Hold, get_pool, hpzctl, running, wait_until  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402

MIB = host.MIB
TOP = Path(__file__).resolve().parents[2]
RULES = TOP / "conf/prometheus/hpz.rules.yml"
BOARD = TOP / "conf/grafana/hpz.json"
# Debian's own parser, which is strict, for whatever python3 is ours.
PARSER = """
import json, sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
print(json.dumps([[family.name, family.type, [[sample.name, sample.labels, sample.value] for sample in family.samples]]
                  for family in text_string_to_metric_families(sys.stdin.read())]))
"""


def parse(text):
    """[name, type, [name, labels, value]...] of each family."""
    done = subprocess.run(["/usr/bin/python3", "-c", PARSER], input=text, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise AssertionError(f"no OpenMetrics: {done.stderr}")
    return json.loads(done.stdout)


def get_metrics():
    """{(name, label values...): value} of samples."""
    return {(name, *sorted(labels.values())): value
            for _, _, samples in parse(hpzctl("metrics").stdout) for name, labels, value in samples}


def get_promtool():
    done = subprocess.run([TOP / "tests/lib/promtool"], capture_output=True, text=True, check=False, timeout=300)
    return done.stdout.strip() if done.returncode == 0 else None


def read_page():
    """{name of a sample: (type, label names)} as the manual page has them."""
    rows = re.findall(r"^\.It (hpz_\w+)(?:\{([\w,]+)\})? (\w+)$", (TOP / "man/hpz-metrics.7").read_text(), re.MULTILINE)
    return {name: (kind, sorted(filter(None, labels.split(",")))) for name, labels, kind in rows}


class Metrics(HpzTest):
    def test_page(self):
        """Every metric is in the manual page with its type and labels, and the other way round."""
        with Hold("--size", 16 * MIB) as holder:
            holder.call("release")
        self.wait_clean()
        seen = {}
        for family, kind, samples in parse(hpzctl("metrics").stdout):
            self.assertTrue(samples, f"{family} has no sample")
            name = family + {"counter": "_total", "info": "_info"}.get(kind, "")
            labels = {label for _, labels, _ in samples for label in labels} - {"le"}
            seen[name] = (kind, sorted(labels))
        self.assertEqual(seen, read_page())

    def test_formats(self):
        """Names and units are as Prometheus wants them; both formats say the same."""
        promtool = get_promtool()
        if not promtool:
            self.skipTest("promtool cannot be downloaded here")
        text = hpzctl("metrics", "--text").stdout
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))
        names = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")}
        self.assertEqual(names, {name for name, *_ in get_metrics()})

    def test_values(self):
        """What happens is counted, once."""
        before = get_metrics()
        with Hold("--size", 32 * MIB) as holder:
            now = get_metrics()
            self.assertEqual(now["hpz_leases", "leased"], 1)
            self.assertEqual(now["hpz_lease_bytes", "leased"], 32 * MIB)
            self.assertEqual(now["hpz_pool_bytes", "0", "2M", "leased", "two"], 32 * MIB)
            self.assertEqual(now["hpz_pool_bytes", "0", "2M", "clean", "two"], get_pool()["clean"] * 2 * MIB)
            holder.call("fill", 1)
            holder.call("release")
        self.wait_clean()
        self.assertNotEqual(hpzctl("lease", "1T", "--path", check=False).returncode, 0)
        after = get_metrics()
        grown = {key: after[key] - before[key] for key in before}
        for key, more in {("hpz_leases_granted_total",): 1, ("hpz_leases_ended_total",): 1, ("hpz_requests_total", "release"): 1,
                          ("hpz_requests_total", "lease"): 2, ("hpz_granted_bytes_total", "clean"): 32 * MIB,
                          ("hpz_returned_bytes_total", "pool"): 32 * MIB, ("hpz_lease_refusals_total", "too_large"): 1,
                          ("hpz_lease_latency_seconds_count", "granted"): 1, ("hpz_lease_latency_seconds_count", "refused"): 1,
                          ("hpz_cleared_bytes_total",): 32 * MIB, ("hpz_worker_bytes_total", "clear"): 32 * MIB,
                          ("hpz_pool_verify_hits_total", "0", "2M", "two"): 0, ("hpz_journal_errors_total",): 0}.items():
            self.assertEqual(grown[key], more, key)
        self.assertGreater(grown["hpz_worker_busy_seconds_total", "clear"], 0)
        self.assertGreaterEqual(grown["hpz_proofs_total", "free"], 1)
        self.assertEqual((after["hpz_up",], after["hpz_pool_idle", "0", "2M", "two"], after["hpz_leases", "leased"]), (1, 1, 0))

    def test_hpzd_away(self):
        self.service.kill()
        done = hpzctl("metrics", check=False)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(parse(done.stdout), [["hpz_up", "gauge", [["hpz_up", {}, 0]]]])
        self.assertIn("hpz_up is 0", done.stderr)


class Exporter(HpzTest):
    def setUp(self):
        super().setUp()
        self.directory = Path(tempfile.mkdtemp(prefix="hpz-metrics-"))
        self.addCleanup(shutil.rmtree, self.directory)
        self.path = self.directory / "socket"
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.process = stack.enter_context(running(
            ["systemd-socket-activate", "-l", self.path, get_build_directory() / "client/hpz-metrics", self.service.socket],
            stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        wait_until("it listens", self.path.exists)

    def connect(self):
        connection = socket.socket(socket.AF_UNIX)
        self.addCleanup(connection.close)
        connection.settimeout(120)
        connection.connect(str(self.path))
        return connection

    def ask(self, request):
        """(status, head, body)"""
        with self.connect() as connection:
            with contextlib.suppress(OSError):
                connection.sendall(request)
            said = b"".join(iter(lambda: connection.recv(65536), b""))
        head, _, body = said.partition(b"\r\n\r\n")
        self.assertRegex(head, rb"^HTTP/1\.1 \d{3} [A-Z]", said)
        length = int(re.search(rb"\r\nContent-Length: (\d+)", head)[1])
        if not request.startswith(b"HEAD"):
            self.assertEqual(len(body), length)
        return int(head.split()[1]), head.decode(), body.decode()

    def scrape(self):
        status, head, body = self.ask(b"GET /metrics HTTP/1.1\r\nHost: h\r\nAccept: application/openmetrics-text;version=1.0.0,*/*\r\n\r\n")
        self.assertEqual(status, 200)
        self.assertIn("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8", head)
        return {name: samples for name, _, samples in parse(body)}

    def test_scrape(self):
        """Both formats, and HEAD."""
        scraped = self.scrape()
        self.assertEqual(scraped["hpz_up"][0][2], 1)
        self.assertEqual(set(scraped), {family for family, _, _ in parse(hpzctl("metrics").stdout)})
        status, head, body = self.ask(b"GET /metrics HTTP/1.0\r\n\r\n")
        self.assertEqual(status, 200)
        self.assertIn("Content-Type: text/plain; version=0.0.4", head)
        self.assertIn("\nhpz_up 1\n", body)
        self.assertNotIn("# EOF", body)
        status, _, body = self.ask(b"HEAD /metrics HTTP/1.1\r\n\r\n")
        self.assertEqual((status, body), (200, ""))

    def test_refused(self):
        for request, wanted in ((b"POST /metrics HTTP/1.1\r\n\r\n", 405), (b"GET / HTTP/1.1\r\n\r\n", 404),
                                (b"\x16\x03\x01\r\n\r\n", 400), (b"A" * 100000, 431), (b"GET /metrics HTTP/3\r\n\r\n", 400)):
            self.assertEqual(self.ask(request)[0], wanted, request[:40])
        self.assertEqual(self.scrape()["hpz_up"][0][2], 1)

    def test_hostile(self):
        """Whoever is silent, sends half a request, or does not read is cut off, and others are served."""
        silent = [self.connect() for _ in range(18)]
        for connection in silent[::2]:
            connection.sendall(b"GET /metrics HTTP/1.1\r\n")
        self.assertEqual(self.scrape()["hpz_up"][0][2], 1)
        for connection in silent:
            connection.settimeout(60)
            with contextlib.suppress(ConnectionResetError):
                self.assertIn(connection.recv(100)[:20], (b"", b"HTTP/1.1 408 Request"))
        wait_until("nobody is left", lambda: not host.get_descendants(self.process.pid))

    def test_hpzd_away(self):
        """Mute or dead, a scrape is answered: hpz_up is 0."""
        pid = self.service.get_pid()
        os.kill(pid, signal.SIGSTOP)
        try:
            scraped = self.scrape()
        finally:
            os.kill(pid, signal.SIGCONT)
        self.assertEqual(scraped, {"hpz_up": [["hpz_up", {}, 0]]})
        self.service.kill()
        self.assertEqual(self.scrape(), {"hpz_up": [["hpz_up", {}, 0]]})
        self.service.start()
        self.assertEqual(self.scrape()["hpz_up"][0][2], 1)

    def test_not_activated(self):
        done = subprocess.run([get_build_directory() / "client/hpz-metrics"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("started by systemd", done.stderr)


class Rules(HpzTest):
    def test_names(self):
        """What the alerts and the board ask for is there."""
        page = read_page()
        names = {re.sub(r"_(bucket|count|sum)$", "", name) if re.sub(r"_(bucket|count|sum)$", "", name) in page else name
                 for file in (RULES, BOARD) for name in re.findall(r"\bhpz_\w+", file.read_text())}
        self.assertGreater(len(names), 20)
        self.assertEqual(names - set(page), set())
        panels = json.loads(BOARD.read_text())["panels"]
        self.assertTrue(all(panel["targets"] and panel["description"] for panel in panels))

    def test_alerts(self):
        """Each fires when it should; and says what to do."""
        promtool = get_promtool()
        if not promtool:
            self.skipTest("promtool cannot be downloaded here")
        with tempfile.TemporaryDirectory() as directory:
            for file in (RULES, TOP / "tests/prometheus/hpz.test.yml"):
                shutil.copy(file, directory)
            for command in (("check", "rules", RULES.name), ("test", "rules", "hpz.test.yml")):
                done = subprocess.run([promtool, *command], capture_output=True, text=True, check=False, cwd=directory, timeout=120)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rules = RULES.read_text()
        tested = (TOP / "tests/prometheus/hpz.test.yml").read_text()
        alerts = re.findall(r"- alert: (\w+)", rules)
        self.assertEqual(len(alerts), len(re.findall(r"^ +description: ", rules, re.MULTILINE)))
        self.assertEqual([alert for alert in alerts if f'"{alert}"' not in tested and alert not in tested], [])


main("--2m", "48", "--stock", "32M*1 16M*2 2M*rest")
