"""What the files suites share: two tenants of the stack, content that text handling would spoil, and counted requests."""

import hashlib
import io
import os
import re
import struct
import zipfile
import zlib

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


# What scenario `code-report` reads: two files of one name.
TABLES = [b"name,value\na,10\nb,20\n", b"name,value\nc,30\nd,40\n"]
VALUES = [10, 20, 30, 40]


def check_report(found):
    """What it writes, by name: a chart with a bar for each value, and a workbook with the values."""
    assert sorted(found) == ["chart.png", "report.xlsx"]
    chart = found["chart.png"]
    assert chart.startswith(b"\x89PNG\r\n\x1a\n")
    chunks, at = {}, 8
    while at < len(chart):
        (length,) = struct.unpack(">I", chart[at : at + 4])
        kind, data = chart[at + 4 : at + 8], chart[at + 8 : at + 8 + length]
        assert struct.unpack(">I", chart[at + 8 + length : at + 12 + length]) == (zlib.crc32(kind + data),)
        chunks[kind], at = data, at + 12 + length
    width, height = struct.unpack(">II", chunks[b"IHDR"][:8])
    line = 1 + 3 * width
    bars = zlib.decompress(chunks[b"IDAT"])
    assert height == len(VALUES) and len(bars) == line * height
    assert [bars[line * row : line * (row + 1)].count(b"\xff") for row in range(height)] == VALUES
    with zipfile.ZipFile(io.BytesIO(found["report.xlsx"])) as book:
        assert book.testzip() is None
        cells = re.findall(rb"<v>(\d+)</v>", book.read("xl/worksheets/sheet1.xml"))
    assert [int(cell) for cell in cells] == VALUES
