"""One file between SDKs: `upload` prints the id of a new file; `read ID...` fails unless each file is as it was uploaded.

Runs with whichever of the two official SDKs its interpreter has."""

import sys

from conversations import ROOT_URL, TIMEOUT, V1_URL
from files_of_sdk import CONTENT, FILES_KEY, sha256


def anthropic_sdk():
    import anthropic

    files = anthropic.Anthropic(base_url=ROOT_URL, api_key=FILES_KEY, max_retries=0, timeout=TIMEOUT).beta.files

    def seen(file_id):
        file = files.retrieve_metadata(file_id)
        return [file.filename, file.size_bytes, sha256(files.download(file_id).read())]

    return (lambda content: files.upload(file=("é.bin", content)).id), seen


def openai_sdk():
    import openai

    files = openai.OpenAI(base_url=V1_URL, api_key=FILES_KEY, max_retries=0, timeout=TIMEOUT).files

    def seen(file_id):
        file = files.retrieve(file_id)
        return [file.filename, file.bytes, sha256(files.content(file_id).read())]

    return (lambda content: files.create(file=("é.bin", content), purpose="user_data").id), seen


try:
    upload, seen = anthropic_sdk()
except ImportError:
    upload, seen = openai_sdk()

if sys.argv[1] == "upload":
    print(upload(CONTENT))
else:
    for file_id in sys.argv[2:]:
        assert seen(file_id) == ["é.bin", len(CONTENT), sha256(CONTENT)], seen(file_id)
