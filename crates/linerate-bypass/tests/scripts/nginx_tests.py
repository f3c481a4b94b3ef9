"""nginx's own tests (public repository nginx/nginx-tests), each on the kernel and under `linerate bypass`.

    nginx_tests.py FOLDER-OF-NGINX-TESTS FOLDER-OF-LINERATE FILE.t...

It needs root, nginx, Perl and iproute2. The tests run in one network namespace and nginx in another, with a cable
(veth) between them, so that their connections are the interface's. For that, 127.0.0.1 is rewritten: to nginx's end
where clients connect and nginx listens, to the tests' end where their own servers are. It prints, for each file, the
tests that came out alike and the share of connections in user space, and ends with 1 if a test differs or a share is
below 99 %. A file of which no connection came is named.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from two_namespaces import CLIENT, SERVER, cable, clean, shell

NAMESPACES = ("linerate-nginx", "linerate-tests")
# How long one file may take, seconds.
PATIENCE = 120
# How long nginx may take until it serves, on either side, seconds.
READY = 1.0


def copy(suite, to):
    """The suite with its addresses rewritten, and a pause until nginx serves."""
    shutil.copytree(suite, to, ignore=shutil.ignore_patterns(".git"))
    for file in [*to.glob("*.t"), *to.glob("lib/**/*.pm")]:
        text = file.read_text(errors="surrogateescape")
        text = re.sub(r"(PeerAddr\s*=>\s*['\"])127\.0\.0\.1", rf"\g<1>{SERVER}", text)
        text = re.sub(r"(LocalAddr\s*=>\s*['\"])127\.0\.0\.1", rf"\g<1>{CLIENT}", text)
        text = re.sub(r"(waitforsocket\(['\"])127\.0\.0\.1", rf"\g<1>{CLIENT}", text)
        pause = f"$self->{{_started}} = 1;\n\tselect undef, undef, undef, {READY};"
        text = text.replace("$self->{_started} = 1;", pause, 1)
        # nginx may be a grandchild.
        ended = "waitpid($pid, WNOHANG); $exited = !kill 0, $pid;"
        text = text.replace("$exited = waitpid($pid, WNOHANG) != 0;", ended)
        file.write_text(text, errors="surrogateescape")


WRAPPER = """#!/usr/bin/env python3
import os, re, subprocess, sys
arguments = sys.argv[1:]
if "-p" not in arguments:
    # It asks which modules there are: only those that are built in.
    told = subprocess.run(["nginx"] + arguments, capture_output=True, text=True)
    sys.stderr.write(re.sub(r"--with-\\S+=dynamic", "", told.stderr))
    sys.exit(told.returncode)
file = os.path.join(arguments[arguments.index("-p") + 1], "nginx.conf")
text = open(file, errors="surrogateescape").read()
listens = set(re.findall(r"listen\\s+127\\.0\\.0\\.1:(\\d+)", text))
text = re.sub(r"127\\.0\\.0\\.1:(\\d+)", lambda at: (
    "{SERVER}" if at[1] in listens else "{CLIENT}") + ":" + at[1], text)
open(file, "w", errors="surrogateescape").write(text)
udp = set(re.findall(r"listen\\s+[\\d.]+:(\\d+)[^;]*\\b(?:udp|quic)\\b", text))
command = ["nginx"] + arguments
if "{LINERATE}" and listens - udp:
    given = [word for port in sorted(listens - udp) for word in ("--listen", "{SERVER}:" + port)]
    command = ["{LINERATE}", "bypass", "--interface", "here", *given, "--", *command]
    os.dup2(os.open("{SAID}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), 2)
os.execvp("ip", ["ip", "netns", "exec", "{NGINX}"] + command)
"""


def run(suite, file, linerate, folder):
    """Runs a file. Returns its lines by test, and what the command said."""
    said = folder / "said"
    said.write_text("")
    wrapper = folder / "nginx"
    text = WRAPPER
    values = {"SERVER": SERVER, "CLIENT": CLIENT, "LINERATE": linerate, "SAID": said, "NGINX": NAMESPACES[0]}
    for name, value in values.items():
        text = text.replace("{" + name + "}", str(value))
    wrapper.write_text(text)
    wrapper.chmod(0o755)
    command = f"ip netns exec {NAMESPACES[1]} env TEST_NGINX_BINARY={wrapper} TEST_NGINX_GLOBALS='user root;' "
    command += f"timeout {PATIENCE} perl {file}"
    output = subprocess.run(command, shell=True, cwd=suite, capture_output=True, text=True, errors="replace")
    # The interface must be free for the next file.
    begin = time.monotonic()
    while "xdp" in shell(f"ip -n {NAMESPACES[0]} link show here").stdout and time.monotonic() - begin < 20:
        time.sleep(0.05)
    results = re.findall(r"^(ok|not ok) (\d+)(.*)$", output.stdout, re.M)
    plan = re.search(r"^1\.\.\d+.*$", output.stdout, re.M)
    names = {number: rest.strip(" -") for _, number, rest in results}
    # With what the test says of itself, such as "# skip".
    lines = {number: ok + "".join(re.findall(r" # \w+", rest)[:1]) for ok, number, rest in results}
    lines["plan"] = plan[0] if plan else output.stderr.strip()[-200:]
    return lines, names, said.read_text()


def main():
    suite, linerate, *files = sys.argv[1:]
    is_good = True
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        folder.chmod(0o755)
        copy(pathlib.Path(suite), folder / "suite")
        cable(NAMESPACES)
        try:
            for file in files:
                kernel, names, _ = run(folder / "suite", file, "", folder)
                ours, _, said = run(folder / "suite", file, pathlib.Path(linerate).resolve() / "linerate", folder)
                shares = re.findall(r"([\d,]+) of ([\d,]+) connections in user space", said)
                mine = sum(int(a.replace(",", "")) for a, _ in shares)
                all_ = sum(int(b.replace(",", "")) for _, b in shares)
                differ = sorted(set(kernel.items()) ^ set(ours.items()))
                passed = sum(line == "ok" for line in ours.values())
                failed = sum(line == "not ok" for line in ours.values())
                verdict = "differs" if differ else "alike"
                if "SKIP" in kernel["plan"] or "skip" in kernel["plan"].lower():
                    verdict = "skipped: " + kernel["plan"]
                elif all_ == 0 or mine < 0.99 * all_:
                    verdict += ", not counted"
                is_good &= not differ
                print(f"{file}: {passed} ok, {failed} not ok, {mine} of {all_} in user space: {verdict}", flush=True)
                for name in sorted({name for name, _ in differ}):
                    print(f"    {name} ({names.get(name)}): kernel {kernel.get(name)!r}, user space {ours.get(name)!r}", flush=True)
                if differ:
                    print("    " + said.strip().replace("\n", "\n    ")[-1500:], flush=True)
        finally:
            clean(NAMESPACES)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
