"""What a program writes, for a checker of types. `mypy --strict` passes it; it is not run."""

from collections.abc import Iterator
from typing import Optional

import linerate


def blocking() -> list[int]:
    with linerate.Client("http://127.0.0.1:8080", pipes=4, client_certificate=("chain", "key")) as client:
        response: linerate.Response = client.get("/a", params={"b": [1, 2]}, headers={"c": "d"}, timeout=0.5)
        kind: Optional[str] = response.raise_for_status().headers.get("content-type")
        all_of_a_name: list[str] = response.headers.get_all("x")
        pairs: list[tuple[str, str]] = response.headers.pairs
        print(kind, all_of_a_name, pairs, linerate.__version__)
        responses: Iterator[linerate.Response] = client.send_all(["/a", linerate.Request("PUT", "/b", body=b"c")])
        return [response.status for response in responses]


def errors(client: linerate.Client) -> None:
    try:
        client.post("/a", json={"b": 1})
    except linerate.OutcomeUnknown as error:
        print(error.request.path, error.why)
    except linerate.StatusError as error:
        print(error.response.status)
    for result in client.send_all(["/a"], return_exceptions=True):
        print(result if isinstance(result, linerate.Error) else result.text())


async def with_asyncio() -> bytes:
    async with linerate.AsyncClient("http://127.0.0.1:8080") as client:
        async for response in client.send_all(["/a"]):
            print(response.json())
        return (await client.patch("/a", "text", timeout=1)).body


async def streams(client: linerate.Client, other: linerate.AsyncClient) -> int:
    with client.stream(linerate.Request("PUT", "/a"), body=(b"b" for _ in range(9)), timeout=1.5) as response:
        length = sum(len(piece) for piece in response)
    async with other.stream("/a") as answer:
        async for piece in answer:
            length += len(piece)
        return length + answer.status + len(await answer.read())


def proxied() -> Optional[int]:
    try:
        linerate.Client("https://a", proxy="http://b:1", no_proxy_for="c").get("/")
    except linerate.ProxyError as error:
        return error.status
    return None


def several(urls: list[str]) -> list[Optional[str]]:
    settings = {"docker": "/run/docker.sock"}
    with linerate.Hosts(pipes=2, connections=16, redirects=0, resolve={"a": ["192.0.2.1:80"]}, unix_sockets=settings) as hosts:
        print(hosts.open_origins, hosts.get("http://a/").status)
        return [response.url for response in hosts.send_all(urls)]


async def several_with_asyncio(url: str) -> int:
    async with linerate.AsyncHosts(origins=8, timeout=5) as hosts:
        return (await hosts.get(url)).raise_for_status().status
