#!/usr/bin/env python3
"""Measures the filter against Envoy's own buffer filter in its place.

wrk, 16 connections -> Envoy with one worker -> a second Envoy that buffers and answers; provider route, otari key.
Rounds alternate between the two, so that whatever else the machine does falls on both; what is reported is the median
of the ratios of neighbouring rounds. Prints a line of JSON; exits 1 if a ratio misses its goal and --check is given.

Needs wrk, target/filter.wasm, and Envoy as ENVOY_BIN or in .tools/.
"""

import argparse
import base64
import hashlib
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENVOY = os.environ.get("ENVOY_BIN", str(ROOT / ".tools/envoy/bin/envoy"))
WASM = os.environ.get("FILTER_WASM", str(ROOT / "target/filter.wasm"))
KEY = "otari_bench"
CONNECTIONS = 16
READY_TIMEOUT_S = 20
# Envoy gives back what compiling the filter took when nobody has wanted it for a minute.
SETTLE_S = 75
MIB = 1024 * 1024
GOALS = {"rps_3kb": 0.90, "rps_230kb": 0.85, "time_32mib": 1.05}

BUFFER_FILTER = """\
{indent}- name: envoy.filters.http.buffer
{indent}  typed_config:
{indent}    "@type": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer
{indent}    max_request_bytes: 67108864
"""

BACKEND = """\
node: {{id: backend, cluster: backend}}
static_resources:
  listeners:
  - name: provider
    address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains: [{{filters: [{{name: envoy.filters.network.http_connection_manager, typed_config: {{
      "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager,
      stat_prefix: provider,
      route_config: {{virtual_hosts: [{{name: all, domains: ["*"], request_body_buffer_limit: 67108864, routes: [
        {{match: {{prefix: /}}, direct_response: {{status: 200, body: {{inline_string: '{{"ok":true}}'}}}}}}]}}]}},
      http_filters: [
        {{name: buffer, typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer, max_request_bytes: 67108864}}}},
        {{name: router, typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}}}]}}}}]}}]
  - name: sidecar
    address: {{pipe: {{path: {dir}/sidecar.sock}}}}
    filter_chains: [{{filters: [{{name: envoy.filters.network.http_connection_manager, typed_config: {{
      "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager,
      stat_prefix: sidecar,
      route_config: {{virtual_hosts: [{{name: all, domains: ["*"], routes: [
        {{match: {{prefix: /}}, direct_response: {{status: 200, body: {{inline_string: '{snapshot}'}}}}}}]}}]}},
      http_filters: [
        {{name: router, typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}}}]}}}}]}}]
"""

WRK = """\
wrk.method = "POST"
local file = io.open("{body}", "rb")
wrk.body = file:read("*a")
file:close()
wrk.headers["content-type"] = "application/json"
wrk.headers["authorization"] = "Bearer {key}"
wrk.headers["x-otari-provider"] = "local"
"""


def conversation(size):
    """A chat request of about this size: text and code, with the escapes that code has."""
    words = "the model wrote def main(): return \"x\"\n\tand then it said, naturally, that for i in range(10): {}".split(" ")
    chance = random.Random(size)
    messages, length = [], 0
    while length < size - 300:
        text = " ".join(chance.choice(words) for _ in range(chance.randrange(40, 400)))[: size - 250 - length]
        messages.append({"role": chance.choice(["user", "assistant"]), "content": text})
        length += len(json.dumps(messages[-1])) + 2
    tools = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
    return json.dumps({"model": "qwen", "messages": messages, "tools": tools, "stream": False}).encode()


def picture(size):
    """A request that is nearly all one base64 string."""
    data = base64.b64encode(random.Random(size).randbytes(size * 3 // 4 - 300)).decode()
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + data}}
    return json.dumps({"model": "qwen", "messages": [{"role": "user", "content": [image]}]}).encode()


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Envoy:
    """One Envoy with one worker, ended on exit."""

    def __init__(self, name, config, folder):
        path = folder / f"{name}.yaml"
        path.write_text(config)
        self.log = open(folder / f"{name}.log", "w")
        arguments = ["-c", str(path), "--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"]
        self.process = subprocess.Popen(
            [ENVOY, *arguments], stdout=subprocess.DEVNULL, stderr=self.log, env=dict(os.environ, OPENAI_API_KEY="x", ANTHROPIC_API_KEY="x")
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.log.close()

    def resident_mib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024


    def cpu_us(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * 1_000_000 / os.sysconf("SC_CLK_TCK")


def post(port, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}", "x-otari-provider": "local"}
    started = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", body, headers)
    answer = connection.getresponse()
    text = answer.read()
    elapsed = time.perf_counter() - started
    connection.close()
    return answer.status, text, elapsed


def wait_until_ready(port, body):
    end = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            if post(port, body)[:2] == (200, b'{"ok":true}'):
                return
        except OSError:
            pass
        if time.monotonic() > end:
            sys.exit(f"port {port} does not answer through to the provider; see the logs")
        time.sleep(0.1)


def run_wrk(port, envoy, script, seconds):
    """Requests per second, and microseconds of processor time that this Envoy spent on each."""
    before = envoy.cpu_us()
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", str(script), f"http://127.0.0.1:{port}/v1/chat/completions"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in output or "Socket errors" in output:
        sys.exit(f"wrk saw errors:\n{output}")
    requests = int(re.search(r"(\d+) requests in", output).group(1))
    return float(re.search(r"Requests/sec:\s+([\d.]+)", output).group(1)), (envoy.cpu_us() - before) / requests


def configs(folder, port, buffer_port, provider_port):
    """The rendered default with this folder's paths and ports; and the same with the buffer filter."""
    text = (ROOT / "envoy/envoy.yaml").read_text()
    text = text.replace("/run/otari/", f"{folder}/").replace("/etc/otari/filter.wasm", WASM)
    text = text.replace("port_value: 11434", f"port_value: {provider_port}")
    # The access log is the same work on both sides; leaving it out shows the filter more sharply.
    text = re.sub(r"^( *)access_log:\n(?:\1[- ] .*\n)+", "", text, flags=re.M)
    ours = text.replace("port_value: 8080", f"port_value: {port}")
    theirs = text.replace("port_value: 8080", f"port_value: {buffer_port}")
    theirs = theirs.replace("/admin.sock", "/admin2.sock").replace("/model.sock", "/model2.sock")
    theirs = theirs.replace("- remove: x-otari-provider\n", "- remove: x-otari-none\n", 1)
    theirs = theirs.replace("x[-_]otari[-_]provider", "x[-_]otari[-_]none", 1)
    theirs, count = re.subn(
        r"^( *)- name: otari\n\1  typed_config:\n(?:\1    .*\n)+", lambda found: BUFFER_FILTER.format(indent=found.group(1)), theirs, flags=re.M
    )
    if count != 1:
        sys.exit("envoy/envoy.yaml has changed its shape: the filter was not found")
    # Per-route settings of a filter that is not there would be refused.
    theirs = re.sub(r"^( *)typed_per_filter_config:\n(?:\1  .*\n)+", "", theirs, flags=re.M)
    return ours, theirs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=2, help="length of one wrk run")
    parser.add_argument("--check", action="store_true", help="exit 1 if a goal is missed")
    options = parser.parse_args()
    if not shutil.which("wrk"):
        sys.exit("wrk is missing: install the package `wrk`")

    digest = hashlib.sha256(KEY.encode()).hexdigest()
    owner = {"user": "default", "workspace": "default"}
    snapshot = json.dumps({"version": 1, "sandbox_available": True, "keys": {digest: owner}, "workspaces": {}})
    folder = pathlib.Path(tempfile.mkdtemp(prefix="otari-bench-"))
    port, buffer_port, provider_port = free_port(), free_port(), free_port()
    ours_config, theirs_config = configs(folder, port, buffer_port, provider_port)
    small, large, huge = conversation(3 * 1024), conversation(230 * 1024), picture(32 * MIB)
    with (
        Envoy("backend", BACKEND.format(port=provider_port, dir=folder, snapshot=snapshot), folder),
        Envoy("filter", ours_config, folder) as ours,
        Envoy("buffer", theirs_config, folder) as theirs,
    ):
        for each in (port, buffer_port):
            wait_until_ready(each, small)
        time.sleep(SETTLE_S)
        result = {"idle_mib": {"filter": round(ours.resident_mib()), "buffer": round(theirs.resident_mib())}}
        for name, body in (("rps_3kb", small), ("rps_230kb", large)):
            (folder / "body").write_bytes(body)
            script = folder / "wrk.lua"
            script.write_text(WRK.format(body=folder / "body", key=KEY))
            sides = ((port, ours), (buffer_port, theirs))
            runs = [[run_wrk(*side, script, options.seconds) for side in sides] for _ in range(options.rounds)]
            result[name] = summary([[rps for rps, _ in run] for run in runs])
            result[name]["cpu_us"] = summary([[cpu for _, cpu in run] for run in runs])
        runs = [[post(each, huge)[2] * 1000 for each in (port, buffer_port)] for _ in range(3 * options.rounds)]
        result["time_32mib"] = summary(runs)
    shutil.rmtree(folder)
    print(json.dumps(result))
    missed = [
        name for name, goal in GOALS.items()
        if (result[name]["ratio"] > goal if name.startswith("time") else result[name]["ratio"] < goal)
    ]
    if missed:
        print("missed: " + ", ".join(f"{name} {result[name]['ratio']} (goal {GOALS[name]})" for name in missed), file=sys.stderr)
    sys.exit(1 if missed and options.check else 0)


def summary(runs):
    ratios = [ours / theirs for ours, theirs in runs]
    return {
        "filter": round(statistics.median(ours for ours, _ in runs), 1),
        "buffer": round(statistics.median(theirs for _, theirs in runs), 1),
        "ratio": round(statistics.median(ratios), 3),
        "spread": [round(min(ratios), 3), round(max(ratios), 3)],
    }


if __name__ == "__main__":
    main()
