"""Two network namespaces with a cable (veth) between them: a server's, where it is called `here`, and its clients'."""

import subprocess

SERVER, CLIENT = "10.77.0.1", "10.77.0.2"


def shell(line, check=True):
    return subprocess.run(line, shell=True, check=check, capture_output=True, text=True)


def clean(names):
    for name in names:
        shell(f"ip netns del {name}", check=False)


def cable(names):
    clean(names)
    server, client = names
    for line in (
        f"ip netns add {server}",
        f"ip netns add {client}",
        f"ip link add here netns {server} type veth peer name there netns {client}",
        f"ip -n {server} addr add {SERVER}/24 dev here",
        f"ip -n {client} addr add {CLIENT}/24 dev there",
        f"ip -n {server} link set here up",
        f"ip -n {client} link set there up",
        f"ip -n {server} link set lo up",
        f"ip -n {client} link set lo up",
    ):
        shell(line)
