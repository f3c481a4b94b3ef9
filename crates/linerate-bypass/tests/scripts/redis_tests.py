"""redis' own tests (public repository redis/redis), each unit on the kernel and under `linerate bypass`.

    redis_tests.py FOLDER-OF-REDIS FOLDER-OF-LINERATE unit/type/string unit/expire...

It needs root, redis-server, tclsh and iproute2. redis is in one network namespace and the tests in another, with a cable
(veth) between them; the tests reach it by `--host` and `--port`, so they leave out what they mark `external:skip`. It
prints, for each unit, the tests that came out alike and the share of connections in user space, and ends with 1 if a
test differs or a share is below 99 %.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import time

from two_namespaces import SERVER, cable, clean, shell

PORT = 6379
NAMESPACES = ("linerate-redis", "linerate-tests")
# How long one unit may take, seconds.
PATIENCE = 900
# How long redis may take until it serves, seconds.
READY = 20


def run(suite, unit, linerate):
    """Runs a unit. Returns what became of its tests, how it ended, and the connections in user space and all."""
    with tempfile.TemporaryDirectory() as place:
        said = pathlib.Path(place) / "said"
        program = ["redis-server", "--bind", SERVER, "--port", str(PORT), "--protected-mode", "no", "--save", ""]
        program += ["--dir", place, "--enable-debug-command", "yes", "--enable-protected-configs", "yes"]
        if linerate:
            program = [linerate, "bypass", "--interface", "here", "--listen", f"{SERVER}:{PORT}", "--", *program]
        enter = ["ip", "netns", "exec", NAMESPACES[0]]
        with open(said, "w") as file:
            server = subprocess.Popen(enter + program, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        tests = f"ip netns exec {NAMESPACES[1]}"
        try:
            ping = f"{tests} redis-cli -h {SERVER} -p {PORT} ping"
            begin = time.monotonic()
            # A connection that comes earlier is the kernel's.
            serves = lambda: not linerate or "is served by TCP in user space" in said.read_text()
            while not serves() or "PONG" not in shell(ping, check=False).stdout:
                if time.monotonic() - begin > READY:
                    sys.exit("redis does not serve: " + said.read_text()[-2000:])
                time.sleep(0.2)
            command = f"{tests} timeout {PATIENCE} ./runtest --host {SERVER} --port {PORT} --single {unit} --durable"
            output = subprocess.run(command, shell=True, cwd=suite, capture_output=True, text=True, errors="replace")
            shell(f"{tests} redis-cli -h {SERVER} -p {PORT} shutdown nosave", check=False)
            server.wait(30)
        finally:
            server.kill() if server.poll() is None else None
            server.wait()
        # Tests of one name are told apart by their order.
        results, seen = {}, {}
        text = re.sub(r"\x1b\[[0-9;]*m", "", output.stdout)
        for state, name in re.findall(r"^\[(ok|err|exception|skip|ignore)\]: (.*?)(?: \(\d+ ms\))?$", text, re.M):
            seen[name] = seen.get(name, 0) + 1
            results[name, seen[name]] = state
        end = "All tests passed" in text and "all passed" or text.strip()[-300:]
        share = re.findall(r"([\d,]+) of ([\d,]+) connections in user space", said.read_text())
        mine, all_ = (int(number.replace(",", "")) for number in (share[-1] if share else ("0", "0")))
        return results, end, mine, all_


def main():
    suite, linerate, *units = sys.argv[1:]
    linerate = pathlib.Path(linerate).resolve() / "linerate"
    is_good = True
    cable(NAMESPACES)
    try:
        for unit in units:
            kernel, end, _, _ = run(suite, unit, None)
            ours, our_end, mine, all_ = run(suite, unit, linerate)
            differ = {name for name, _ in set(kernel.items()) ^ set(ours.items())}
            passed = sum(state == "ok" for state in ours.values())
            others = len(ours) - passed
            alike = not differ and (end == "all passed") == (our_end == "all passed") and ours
            counted = all_ > 0 and mine >= 0.99 * all_
            is_good &= bool(alike) and counted
            verdict = ("alike" if alike else "differs") + ("" if counted else ", not counted")
            print(f"{unit}: {passed} ok, {others} others, {mine} of {all_} in user space: {verdict}", flush=True)
            for name in sorted(differ):
                print(f"    {name}: kernel {kernel.get(name)!r}, user space {ours.get(name)!r}", flush=True)
            if not alike:
                print(f"    kernel: {end}\n    user space: {our_end}", flush=True)
    finally:
        clean(NAMESPACES)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
