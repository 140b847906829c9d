"""What the files suites share: two tenants of the stack, content that text handling would spoil, and counted requests."""

import hashlib
import os

try:
    import httpx2 as httpx  # What the newer SDKs send with.
except ImportError:
    import httpx

# The suite's own tenant, so that its lists hold its files alone; and another one in the same workspace.
FILES_KEY = os.environ["OTARI_FILES_KEY"]
OTHER_KEY = os.environ["OTARI_OTHER_KEY"]
# Of the stack: `files.max_bytes`.
MAX_BYTES = int(os.environ["OTARI_FILES_MAX_BYTES"])

# Every value of a byte, line ends in every order, and what looks like a boundary.
CONTENT = bytes(range(256)) * 4 + b"\r\n\n\r\r\n--\r\n--boundary--\r\n"


def sha256(content):
    return hashlib.sha256(content).hexdigest()


class Counter:
    """Requests of a client, by what they asked for."""

    def __init__(self):
        self.requests = []

    def transport(self, **options):
        return httpx.Client(event_hooks={"request": [lambda request: self.requests.append(request)]}, **options)
