"""An hpzd of its own, beside the one under test, with pages that do not exist: any size, no memory."""
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from hpztest import host
from hpztest.client import hpzctl, hpzctl_json, wait_until
from hpztest.service import Service


class SimulatedTest(unittest.TestCase):
    HPZD = ""  # more of that section
    POOL = "pages = 1T\nstock = 104M*rest"

    def setUp(self):
        self.directory = Path(tempfile.mkdtemp(prefix="hpz-simulated-"))
        self.addCleanup(shutil.rmtree, self.directory)
        self.service = Service(self.directory)
        self.service.config.write_text(f"[hpzd]\nrun_dir = {self.directory}\nsocket = {self.service.socket}\n{self.HPZD}\n[pool big]\n"
                                       f"page_size = 2M\n{self.POOL}\n", encoding="utf-8")
        self.addCleanup(self._unmount)
        self.addCleanup(self.end)
        self.start()

    def start(self):
        log = self.directory / "hpzd.log"
        with open(log, "ab") as file:
            self.process = subprocess.Popen([str(self.service.program), "--simulate", "--config", str(self.service.config)],
                                            stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        wait_until("hpzd serves", lambda: self.process.poll() is not None or self.service.is_served())
        self.assertIsNone(self.process.poll(), log.read_text(encoding="utf-8"))
        self.hpzctl("wait")

    def end(self):
        host.end_process(self.process.pid)
        self.process.wait(60)

    def _unmount(self):
        for mount in (self.directory / "mnt").glob("*"):
            subprocess.run(["umount", "-l", str(mount)], check=False)

    def hpzctl(self, *arguments, **run):
        return hpzctl(*arguments, "--socket", self.service.socket, **run)

    def get_status(self):
        return hpzctl_json("status", "--socket", self.service.socket)

    def get_pool(self):
        return self.get_status()["pools"][0]
