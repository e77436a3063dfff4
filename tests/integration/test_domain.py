#!/usr/bin/env python3
"""hpzctl domain without a libvirtd: what can be said of an XML, and libvirt's test driver."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "lib"))
from hpztest import host  # noqa: E402
from hpztest.case import HpzTest, main  # noqa: E402
from hpztest.client import hpzctl, hpzctl_json  # noqa: E402
from hpztest.service import get_build_directory  # noqa: E402

MIB = host.MIB
UUID = "11111111-2222-3333-4444-5555555555ab"
RUNS = "6695eb01-f6a4-8304-79aa-97f2502e193f"  # the domain of test:///default
BACKING = "<memoryBacking><source type='file'/><access mode='shared'/></memoryBacking>"


def get_xml(memory=64, backing=BACKING, more="", name="web1"):
    return f"""<domain type='kvm'><name>{name}</name><uuid>{UUID}</uuid><memory unit='MiB'>{memory}</memory>{backing}{more}
<os><type arch='x86_64' machine='q35'>hvm</type></os></domain>"""


class Domain(HpzTest):
    def check(self, xml):
        """What is said, and not of the host's hook, which a test machine has or has not."""
        done = subprocess.run([get_build_directory() / "client/hpzctl", "domain", "check", "--xml", "-", "--json"], input=xml, text=True,
                              capture_output=True, check=False, timeout=120, env={**os.environ, "HPZ_CONFIG": str(self.service.config)})
        self.assertIn(done.returncode, (0, 1), done.stderr)
        said = json.loads(done.stdout)
        self.assertEqual(said["schema"], "hpz-domain-check-1")
        self.assertEqual(done.returncode, 0 if said["pooled"] else 1)
        self.assertEqual(said["pooled"], not said["problems"])
        said["problems"] = [problem for problem in said["problems"] if "libvirt has no hook" not in problem]
        return said

    def test_check(self):
        said = self.check(get_xml())
        self.assertEqual((said["name"], said["uuid"], said["planned"], said["size"]), ("web1", UUID, True, 64 * MIB))
        self.assertEqual(said["files"], [{"alias": "pc.ram", "size": 64 * MIB, "nodes": 0}])
        self.assertEqual(said["problems"], [])
        self.assertTrue(said["now"])

    def test_check_cells(self):
        cells = "<cpu><numa>" + "".join(f"<cell id='{cell}' cpus='{cell}' memory='16' unit='MiB'/>" for cell in range(2)) + "</numa></cpu>"
        said = self.check(get_xml(32, more=cells))
        self.assertEqual([file["alias"] for file in said["files"]], ["ram-node0", "ram-node1"])
        self.assertEqual(said["problems"], [])

    def test_check_why_not(self):
        for xml, word in ((get_xml(backing=""), "not a file"), (get_xml(backing="<memoryBacking><source type='file'/></memoryBacking>"), "shared"),
                          (get_xml(backing="<memoryBacking><hugepages/></memoryBacking>"), "hugepages")):
            said = self.check(xml)
            self.assertEqual((said["planned"], said["files"], said["now"]), (False, [], None))
            self.assertIn(word, said["problems"][0])
        said = self.check(get_xml(memory=1 << 20))
        self.assertTrue(said["planned"])
        self.assertIn("hpzd", said["problems"][0])

    def test_check_of_the_configuration(self):
        with open(self.service.config, "a", encoding="utf-8") as config:
            config.write("[libvirt]\nenabled = no\n")
        self.assertIn("[libvirt] of hpzd.conf says enabled = no", self.check(get_xml())["problems"])

    def test_check_without_hpzd(self):
        self.service.stop()
        self.assertIn("hpzd cannot be asked", self.check(get_xml())["problems"][0])

    def test_wrapped(self):
        """With hpz-qemu libvirt may say what it likes."""
        said = self.check(get_xml(backing="<memoryBacking><hugepages/></memoryBacking>", more="<devices><emulator>/usr/libexec/hpz/hpz-qemu"
                                                                                             "</emulator></devices>"))
        self.assertEqual((said["pooled"], said["problems"]), (True, []))
        self.assertIn("hpz-qemu", said["notes"][0])

    def test_hostile(self):
        """Refused, or printed so that no terminal is harmed."""
        for xml in ("", "<", "<domain/>", "<domain type='kvm'>" * 10000, get_xml(name="a&#27;[2J"), get_xml(name="../x"), get_xml(memory=-1),
                    "<!DOCTYPE d [<!ENTITY e '" + "x" * 1000 + "'>]>" + get_xml(name="&e;" * 1000), " " * (5 * MIB)):
            done = subprocess.run([get_build_directory() / "client/hpzctl", "domain", "check", "--xml", "-"], input=xml, text=True,
                                  capture_output=True, check=False, timeout=120)
            self.assertEqual(done.returncode, 1, (xml[:100], done))
            self.assertNotIn("\x1b", done.stdout + done.stderr)

    def test_list(self):
        """Leases of a domain are found by their keys, and nobody else's."""
        for key, pages in ((f"libvirt:{RUNS}:1-2", 1), (f"libvirt:{RUNS}:dimm0", 2), (f"libvirt:{UUID}:1-2", 4), ("mine", 8)):
            hpzctl("lease", f"{2 * pages}M", "--path", "--key", key)
        lease = next(lease["id"] for lease in hpzctl_json("leases")["leases"] if lease["key"] == f"libvirt:{RUNS}:1-2")
        listed = hpzctl_json("domain", "list", "--connect", "test:///default")
        self.assertEqual(listed["schema"], "hpz-domains-1")
        domain, = listed["domains"]
        self.assertEqual((domain["name"], domain["uuid"], domain["active"], domain["lease"], domain["leased"]),
                         ("test", RUNS, True, lease, 6 * MIB))
        table = hpzctl("domain", "list", "--connect", "test:///default").stdout.splitlines()
        self.assertEqual(table[0].split()[:5], ["DOMAIN", "STATE", "MEMORY", "POOLED", "LEASE"])
        self.assertEqual([table[1].split()[index] for index in (0, 1, 4, 5)], ["test", "running", "yes", str(lease)])

    def test_list_without_hpzd(self):
        self.service.stop()
        domain, = hpzctl_json("domain", "list", "--connect", "test:///default")["domains"]
        self.assertEqual((domain["name"], domain["lease"], domain["leased"]), ("test", None, None))

    def test_usage(self):
        for words in (["domain"], ["domain", "nonsense"], ["domain", "check"], ["domain", "check", "a", "b"], ["domain", "list", "a"],
                      ["domain", "attach-memory", "a"], ["domain", "attach-memory", "a", "1"], ["domain", "detach-memory", "a", "../x"]):
            done = hpzctl(*words, check=False)
            self.assertEqual((done.returncode, done.stdout), (2, ""), words)
        for words in (["domain"], ["domain", "enable"], ["domain", "attach-memory"]):
            self.assertIn("usage: hpzctl domain", hpzctl(*words, "--help").stdout)
        self.assertIn("no domain", hpzctl("domain", "enable", "nosuch", "--connect", "test:///default", check=False).stderr)
        self.assertIn("cannot connect to libvirt", hpzctl("domain", "list", "--connect", "qemu+unix:///system?socket=/nonexistent/hpz", check=False).stderr)

    def test_built_without_libvirt(self):
        """An hpzctl that lies alone, with nothing installed, says what is missing."""
        with tempfile.TemporaryDirectory() as directory:
            alone = Path(directory, "hpzctl")
            shutil.copy(get_build_directory() / "client/hpzctl", alone)
            done = subprocess.run([alone, "domain", "list", "--connect", "test:///default"], capture_output=True, text=True, check=False, timeout=60,
                                  env={**os.environ, "LD_LIBRARY_PATH": str(get_build_directory() / "lib")})
        # Or with the one that is installed on this machine.
        self.assertEqual("without libvirt" in done.stderr, done.returncode == 1, done.stderr)


if __name__ == "__main__":
    main()
