"""Keeps many consumers in a long poll over plain connections until standard input closes."""

import asyncio
import json
import sys
from urllib.parse import urlsplit


async def wait(host: str, port: int, number: int) -> None:
    """Polls without end for messages that never come."""
    body = json.dumps({"consumer": f"w-{number}", "wait_seconds": 20})
    path = f"/v1/subjects/quiet/groups/g-{number % 10}/pull"
    lines = [f"POST {path} HTTP/1.1", f"host: {host}", "content-type: application/json", f"content-length: {len(body)}"]
    request = "\r\n".join([*lines, "", body])
    reader, writer = await asyncio.open_connection(host, port)
    try:
        while True:
            writer.write(request.encode())
            await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.split(b":")[1]))
    finally:
        writer.close()


async def main(url: str, count: int) -> None:
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    tasks = []
    for number in range(count):
        tasks.append(asyncio.create_task(wait(parts.hostname, parts.port, number)))
        if number % 50 == 0:
            await asyncio.sleep(0.01)
    await asyncio.sleep(1)
    print("waiting" if not any(task.done() for task in tasks) else "failed", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for task in tasks:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
