"""A handler behind which PostgreSQL locks a row: rows.py PORT THREADS. In the mode "think" each call
updates the same row and holds it for 100 ms, so that one call is served at a time, whatever THREADS."""
import ctypes, os, pathlib, shutil, signal, subprocess, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

mode, NOBODY = os.environ["BENCH_MODE"], 65534
folder = pathlib.Path(os.environ["BENCH_MARK"]).parent
home = folder / "postgres"
home.mkdir()
folder.chmod(0o711)

def program(name):
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else shutil.which(name)

def ordinary():
    """PostgreSQL refuses to run as root; and it ends with us."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    ctypes.CDLL(None).prctl(1, signal.SIGQUIT)

def run(*words, **more):
    return subprocess.Popen(words, preexec_fn=ordinary, cwd=home, **more)

if os.getuid() == 0:
    os.chown(home, NOBODY, NOBODY)
quiet = {"stdout": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
assert run(program("initdb"), "-D", "data", "-U", "app", "-A", "trust", "-N", **quiet).wait() == 0
run(program("postgres"), "-D", "data", "-k", str(home), "-h", "", "-F", **quiet, stderr=subprocess.DEVNULL)

class Session:
    """A connection to the database, by psql."""
    def __init__(self):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        self.psql = run("psql", "-qAtX", "-h", str(home), "-U", "app", "postgres", **pipes)

    def do(self, sql):
        self.psql.stdin.write(sql + "\n\\echo done\n")
        self.psql.stdin.flush()
        while (line := self.psql.stdout.readline()) != "done\n":
            if not line:
                raise OSError("psql has ended")

def first():
    for _ in range(200):
        try:
            session = Session()
            session.do("create table hits (id int primary key, n int); insert into hits values (1, 0);")
            return session
        except OSError:
            time.sleep(0.05)
    sys.exit("PostgreSQL does not answer")

free = [first()] + [Session() for _ in range(int(sys.argv[2]) - 1)]
has = threading.Semaphore(len(free))

class Handler(BaseHTTPRequestHandler):
    protocol_version, wbufsize = "HTTP/1.1", 1 << 16

    def do_GET(self):
        work = "select pg_sleep(0.1);" if mode == "think" else ""
        with has:
            session = free.pop()
            session.do(f"begin; update hits set n = n + 1 where id = 1; {work} commit;")
            free.append(session)
        body = b"Hello, World!\n" * 20
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass

ThreadingHTTPServer(("0.0.0.0", int(sys.argv[1])), Handler).serve_forever()
