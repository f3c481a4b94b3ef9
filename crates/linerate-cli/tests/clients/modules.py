# CAFILE PORT MODULE: a body there and back by httpx or aiohttp.
import ssl, sys
cafile, port, module = sys.argv[1:4]
context = ssl.create_default_context(cafile=cafile)
url, body = f"https://localhost:{port}/echo", b"x" * 3_000_000
if module == "httpx":
    import httpx
    with httpx.Client(verify=context) as client:
        for _ in range(3):
            assert client.post(url, content=body).content == body
else:
    import aiohttp, asyncio
    async def run():
        async with aiohttp.ClientSession() as session:
            for _ in range(3):
                async with session.post(url, data=body, ssl=context) as answer:
                    assert await answer.read() == body
    asyncio.run(run())
print("good")
