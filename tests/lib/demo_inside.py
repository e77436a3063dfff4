"""The part of tests/demo that runs beside hpzd (inside tests/with-daemon): fill, starts side by side, boot, return."""
import json
import os
import subprocess
import sys
import time

from hpztest.client import Hold, get_pool, get_status, hpzctl
from hpztest.guest import Guest, get_command, get_image

ROUNDS = 7
BAR = 40
IS_TERMINAL = sys.stdout.isatty()
BOLD, PLAIN = ("\033[1m", "\033[0m") if IS_TERMINAL and not os.environ.get("NO_COLOR") else ("", "")


def head(text):
    print(f"\n{BOLD}{text}{PLAIN}", flush=True)


def step(name, text):
    print(f"   {name:<15} {text}", flush=True)


def show_command_output(*arguments):
    print(f"   $ hpzctl {' '.join(arguments)}")
    for line in hpzctl(*arguments).stdout.rstrip().split("\n"):
        print(f"     {line}")


def draw(name, part, whole, unit):
    full = BAR * part // max(whole, 1)
    return f"   {name:<15} [{'#' * full}{'.' * (BAR - full)}] {part} of {whole} {unit}"


def watch_fill():
    """Progress as status has it: a moving bar on a terminal, otherwise a line each time a quarter more is done."""
    begin, shown = time.monotonic(), -1
    while True:
        pool = get_pool()
        done = pool["clean"] + pool["filling"] if pool["clean"] < pool["target"] else pool["clean"]
        line = draw("filling", min(done, pool["target"]) * 2, pool["target"] * 2, "MiB")
        if IS_TERMINAL:
            print(f"\r{line}", end="", flush=True)
        elif done * 4 // pool["target"] > shown:
            shown = done * 4 // pool["target"]
            print(line, flush=True)
        if pool["clean"] >= pool["target"]:
            break
        time.sleep(0.02)
    if IS_TERMINAL:
        print()
    return time.monotonic() - begin


def wait_clean():
    begin = time.monotonic()
    subprocess.run(["hpzctl", "wait"], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begin


def show_times(times):
    fresh, leased, tiny = times["prealloc_ms"], times["hpz_ms"], times["tiny_vm_ms"]
    width = max(fresh, leased)
    for name, median in ("fresh pages", fresh), ("hpzctl run", leased), ("hardly any", tiny):
        step(name, f"{median:6.0f} ms  {'#' * max(1, min(BAR, round(BAR * median / width)))}")
    ratio, saved = times["ratio"], fresh - leased
    text = f"ready {ratio:.1f} times as fast, {saved:.0f} ms earlier; the rest is QEMU itself" if ratio >= 1.1 else \
        f"no difference worth a sentence here (ratio {ratio:.2f})"
    step("", f"{text} (medians of {times['rounds']} rounds)")
    if times["spread"] > 0.2:
        step("", f"but the ratios spread by {times['spread']:.0%}: this machine is busy, take the figures as a hint")


def main():
    memory_mib = int(sys.argv[1])
    image = get_image()
    fill_mib = min(256, memory_mib // 4)

    head("2. hpzd fills its pool, in the background, before anybody needs it")
    seconds = watch_fill()
    step("", f"one segment of {memory_mib} MiB, every byte zero, after {seconds:.1f} s; from now on it waits for a guest")

    head(f"3. A guest of {memory_mib} MiB started both ways, from exec until QEMU says hello")
    step("fresh pages", f"-object memory-backend-memfd,hugetlb=on,prealloc=on,prealloc-threads={len(os.sched_getaffinity(0))}: "
         "the memory is zeroed now")
    step("", "(pages written to once before: such that are new to the kernel may cost seconds more)")
    step("hpzctl run", "hpzctl run -- qemu-system-x86_64 ...: the memory is zero already")
    step("hardly any", "a guest of 8 MiB: what QEMU itself takes")
    done = hpzctl("bench", "vm", "--size", f"{memory_mib}M", "--rounds", ROUNDS, "--libvirt", "no", "--json", check=False)
    if not done.stdout:
        raise AssertionError(done.stderr)
    # Also with status 75, when the machine is busy: the spread says so.
    show_times(json.loads(done.stdout))

    head("4. It is a real guest")
    wait_clean()
    with Guest(["hpzctl", "run", "--", *get_command(memory_mib, f"hpz.fill={fill_mib} hpz.sleep", image)]) as guest:
        guest.wait_greeting()
        line, milliseconds = guest.wait_line("HPZ-GUEST up=")
        step("its init", f'"{line}" after {milliseconds / 1000:.1f} s')
        line, _ = guest.wait_line("HPZ-GUEST filled")
        step("", f'"{line}": so much of the lease is not zero any more')
        show_command_output("status")
        guest.quit()

    head("5. The guest is gone, its memory comes back")
    seconds = wait_clean()
    status, pool = get_status(), get_pool()
    step("cleared", f"{memory_mib} MiB with {status['method']}, clean again {seconds:.2f} s after QEMU ended")
    step("books", f"{pool['clean']} of {pool['total']} pages clean, {pool['leased']} leased, {pool['dirty']} dirty, "
         f"{len(status['leases'])} leases")
    with Hold("--size", memory_mib << 20, "--label", "reader") as reader:
        answer = reader.call("check-zero")
    step("proof", f"the next tenant has read all {answer['bytes'] >> 20} MiB: "
         + ("every byte is zero" if answer["equal"] else f"byte {answer['offset']} IS NOT ZERO"))
    wait_clean()
    return 0 if answer["equal"] and pool["clean"] == pool["total"] == pool["target"] else 1


sys.exit(main())
