#!/bin/sh
# uvicorn 0.54.0 (with h11 0.16.0) hands a request target in absolute form to the application as its path.
#
# RFC 9112 section 3.2.2: a server must accept the absolute form, and the authority of the target replaces Host. The
# ASGI scope gets "path": "http://127.0.0.1/x" and the Host header as it was sent, so every framework answers 404, and
# a check of Host looks at the wrong name. The same request in origin form has "path": "/x".
#
# Runs outside of Outrider, on valid requests. Exit code 0: as described. 1: it changed.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check uvicorn==0.54.0 h11==0.16.0
"$folder/venv/bin/python" - <<'PYTHON'
import asyncio
import importlib.metadata

import uvicorn

seen = []


async def app(scope, receive, send):
    seen.append((scope["path"], dict(scope["headers"])[b"host"].decode()))
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def main():
    server = uvicorn.Server(uvicorn.Config(app, port=0, http="h11", lifespan="off", log_level="error"))
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    for target in ("/x", "http://named.example/x"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {target} HTTP/1.1\r\nHost: sent.example\r\nConnection: close\r\n\r\n".encode())
        await reader.read()
        writer.close()
    server.should_exit = True
    await task


asyncio.run(main())
print("uvicorn", importlib.metadata.version("uvicorn"))
for path, host in seen:
    print(f"path {path!r}, Host {host!r}")
raise SystemExit(seen != [("/x", "sent.example"), ("http://named.example/x", "sent.example")])
PYTHON
