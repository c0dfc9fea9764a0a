"""Behaves towards its starter as `mint serve` does, without a model: python fake_serve.py MODE ….

Modes: ok; slow (says two lines first, answers after 3 s); dies (says why and leaves with 3);
down (answers, but its engine is dead).
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mode")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--on-demand", action="store_true")
    parser.add_argument("--exit-when-idle", type=float)
    parser.add_argument("--model", action="append")
    options = parser.parse_args()
    with (options.data / "starts").open("a") as starts:
        starts.write(f"{options.model}\n")
    if options.mode == "dies":
        print("loading weights\nRuntimeError: no space left on device", flush=True)
        sys.exit(3)
    if options.mode == "slow":
        print("converting model\rconverting model 10 %", flush=True)
        time.sleep(2.6)
        print("converting model\rconverting model 90 %", flush=True)
        time.sleep(0.6)
    serve(options)


def serve(options: argparse.Namespace) -> None:
    key = options.data / "key"
    if not key.exists():
        key.write_text("sk-local\n")
        key.chmod(0o600)
    last = [time.monotonic()]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            last[0] = time.monotonic()
            ok = self.path == "/healthz" or self.headers["X-API-Key"] == "tml-sk-local"
            state = "down" if options.mode == "down" else "up"
            body = json.dumps({"status": "ok", "engine": {"state": state}}).encode()
            self.send_response(200 if ok else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer((options.host, options.port), Handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    record = options.data / "server.json"
    url = f"http://127.0.0.1:{server.server_address[1]}"
    partial = record.with_suffix(".partial")
    partial.write_text(json.dumps({"url": url, "pid": os.getpid()}))
    partial.replace(record)
    try:
        while time.monotonic() - last[0] < options.exit_when_idle:
            time.sleep(0.05)
    finally:
        record.unlink(missing_ok=True)


main()
