"""Runs scripts of tlsfuzzer, several at a time: python run.py FOLDER PORT < scripts

Each line of the input is a script and its arguments. Each line of the output is a JSON object: the
script, how many conversations passed, and those that failed with their reasons.

The scripts for TLS 1.2 that offer only CBC suites are given GCM suites of the same key exchange:
what they test is not the cipher, and rustls has none with CBC.
"""

import json
import os
import re
import shlex
import signal
import sys
import tempfile

AT_ONCE = 3
SECONDS = 60

sys.path.insert(0, sys.argv[1])
from tlslite.constants import CipherSuite  # noqa: E402
import tlsfuzzer.expect  # noqa: E402,F401
import tlsfuzzer.messages  # noqa: E402,F401
import tlsfuzzer.runner  # noqa: E402,F401

for kind in "RSA", "ECDSA":
    gcm = getattr(CipherSuite, "TLS_ECDHE_%s_WITH_AES_128_GCM_SHA256" % kind)
    for cbc in "AES_128_CBC_SHA", "AES_128_CBC_SHA256":
        setattr(CipherSuite, "TLS_ECDHE_%s_WITH_%s" % (kind, cbc), gcm)


def play(script, words):
    """In a process of its own: the script's output goes to stdout."""
    sys.argv = [script, "-h", "127.0.0.1", "-p", sys.argv[2]] + words
    signal.alarm(SECONDS)
    name = "tlsfuzzer._apps." + script.replace("-", "_")
    try:
        __import__(name, fromlist=("tlsfuzzer._apps",)).main()
        return 0
    except SystemExit as end:
        return end.code or 0


def begin(line):
    script, *words = shlex.split(line)
    out = tempfile.TemporaryFile()
    child = os.fork()
    if child == 0:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
        code = 1
        try:
            code = play(script, words)
        except BaseException as error:
            print("the script itself failed: %r" % error)
        sys.stdout.flush()
        os._exit(code)
    return child, (script, out)


def report(script, out, status):
    out.seek(0)
    text = out.read().decode("utf-8", "replace")
    counts = dict(re.findall(r"^(TOTAL|PASS|SKIP|XFAIL|FAIL|XPASS): (\d+)$", text, re.M))
    failed, name = {}, None
    for line in text.splitlines():
        begun = re.match(r'"(\S.*)" repeat \d+\.\.\.$|(\S.*) \.\.\.$', line)
        if begun:
            name = begun.group(1) or begun.group(2)
        elif name and re.match(r"(\w+\.)*\w*(Error|Exception)\b", line):
            failed[name] = line
    listed = text.rpartition("FAILED:\n")[2] if "FAILED:\n" in text else ""
    listed = re.findall(r"^\t'(.*)'$", listed, re.M)
    done = {"script": script, "passed": int(counts.get("PASS", 0)) + int(counts.get("XFAIL", 0))}
    done["failed"] = {name: failed.get(name, "") for name in listed}
    if "TOTAL" not in counts:
        done["broken"] = text[-300:] if status else "it reports nothing"
    print(json.dumps(done), flush=True)


def main():
    left = [line for line in sys.stdin.read().splitlines() if line.strip()][::-1]
    running = {}
    while left or running:
        while left and len(running) < AT_ONCE:
            child, what = begin(left.pop())
            running[child] = what
        child, status = os.wait()
        if child in running:
            report(*running.pop(child), status)


main()
