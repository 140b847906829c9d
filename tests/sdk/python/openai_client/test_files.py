"""The Files API, seen by the official SDK: as if the provider kept the files."""

import asyncio
import io
import pathlib
import time

import openai
import pytest

from conftest import make_client
from conversations import TIMEOUT, V1_URL
from files_of_sdk import CONTENT, FILES_KEY, MAX_BYTES, OTHER_KEY, Counter, sha256


@pytest.fixture
def files():
    with make_client(api_key=FILES_KEY) as client:
        yield client.files
        for file in list(client.files.list()):
            client.files.delete(file.id)


@pytest.fixture
def others():
    with make_client(api_key=OTHER_KEY) as client:
        yield client.files
        for file in list(client.files.list()):
            client.files.delete(file.id)


def test_every_form_of_an_upload_is_kept_byte_for_byte(files, tmp_path):
    path = tmp_path / "a b é.csv"
    path.write_bytes(CONTENT)
    with open(path, "rb") as stream:
        for form, name in [
            (pathlib.Path(path), "a b é.csv"),
            (stream, "a b é.csv"),
            (CONTENT, "upload"),
            (io.BytesIO(CONTENT), "upload"),
            (("测试.md", CONTENT), "测试.md"),
            (("b.bin", io.BytesIO(CONTENT), "text/plain"), "b.bin"),
            (("dir/c.bin", CONTENT, "application/x-own"), "c.bin"),
        ]:
            file = files.create(file=form, purpose="assistants")
            assert (file.filename, file.bytes, file.purpose) == (name, len(CONTENT), "assistants")
            assert (file.object, file.status, file.expires_at) == ("file", "processed", None)
            assert abs(time.time() - file.created_at) < 300
            assert files.content(file.id).read() == CONTENT
            assert files.retrieve(file.id) == file


def test_every_purpose_of_an_upload_is_taken(files):
    for purpose in ["assistants", "batch", "fine-tune", "vision", "user_data", "evals"]:
        assert files.create(file=("a.jsonl", b"{}"), purpose=purpose).purpose == purpose
        assert [file.purpose for file in files.list(purpose=purpose)] == [purpose]
    with pytest.raises(openai.BadRequestError) as refused:
        files.create(file=("a.jsonl", b"{}"), purpose="asistants")
    assert refused.value.param == "purpose"


def test_the_async_client_uploads_and_reads_as_well():
    async def talk():
        async with openai.AsyncOpenAI(base_url=V1_URL, api_key=FILES_KEY, max_retries=0, timeout=TIMEOUT) as client:
            file = await client.files.create(file=("a.bin", CONTENT), purpose="user_data")
            content = (await client.files.content(file.id)).read()
            found = [one.id async for one in client.files.list(limit=1)]
            await client.files.delete(file.id)
            return file.id, content, found

    file_id, content, found = asyncio.run(talk())
    assert content == CONTENT
    assert file_id in found


def test_a_download_streams_into_a_file(files, tmp_path):
    content = CONTENT * 4000
    file = files.create(file=("large.bin", content), purpose="user_data")
    target = tmp_path / "large.bin"
    with files.with_streaming_response.content(file.id) as response:
        response.stream_to_file(target)
        assert response.headers["content-length"] == str(len(content))
    assert sha256(target.read_bytes()) == sha256(content)


def test_a_list_gives_every_file_once_with_others_in_between(files, others):
    made = {"batch": [], "vision": []}
    for number in range(14):
        purpose = ["batch", "vision"][number % 2]
        made[purpose].insert(0, files.create(file=(f"{number}.txt", b"mine"), purpose=purpose).id)
        others.create(file=(f"{number}.txt", b"theirs"), purpose="batch")
    whole = [file_id for pair in zip(made["vision"], made["batch"]) for file_id in pair]
    counter = Counter()
    with make_client(api_key=FILES_KEY, http_client=counter.transport()) as client:
        for options, expected, requests in [
            ({"limit": 2}, whole, 7),
            ({"limit": 5}, whole, 3),
            ({}, whole, 1),
            ({"limit": 5, "order": "asc"}, whole[::-1], 3),
            ({"limit": 3, "purpose": "batch"}, made["batch"], 3),
            ({"limit": 3, "purpose": "fine-tune"}, [], 1),
        ]:
            counter.requests.clear()
            assert [file.id for file in client.files.list(**options)] == expected, options
            assert len(counter.requests) == requests, options


def test_a_file_says_when_it_expires(files):
    after = {"anchor": "created_at", "seconds": 3600}
    file = files.create(file=("a.txt", b"mine"), purpose="user_data", expires_after=after)
    assert abs(file.expires_at - file.created_at - 3600) <= 5
    with pytest.raises(openai.BadRequestError) as refused:
        files.create(file=("a.txt", b"mine"), purpose="user_data", expires_after={**after, "seconds": 3599})
    assert refused.value.param == "expires_after[seconds]"


def test_nobody_waits_for_a_file(files):
    file = files.create(file=("a.txt", b"mine"), purpose="user_data")
    assert files.wait_for_processing(file.id, max_wait_seconds=1).id == file.id


def test_a_deleted_file_is_gone(files):
    file = files.create(file=("a.txt", b"mine"), purpose="user_data")
    deleted = files.delete(file.id)
    assert (deleted.id, deleted.deleted, deleted.object) == (file.id, True, "file")
    for ask in (files.delete, files.retrieve, files.content):
        with pytest.raises(openai.NotFoundError) as gone:
            ask(file.id)
        assert gone.value.type == "invalid_request_error"
        assert file.id in gone.value.message
        assert gone.value.request_id


def test_a_file_of_another_tenant_is_as_if_it_were_not_there(files, others):
    theirs = others.create(file=("a.txt", b"theirs"), purpose="user_data").id
    for file_id in [theirs, "file-abc123", "a/../b?x", "%00"]:
        for ask in (files.retrieve, files.content, files.delete):
            with pytest.raises(openai.NotFoundError):
                ask(file_id)
    with pytest.raises(openai.NotFoundError):
        list(files.list(after=theirs))
    assert others.content(theirs).read() == b"theirs"


def test_what_is_refused_says_why(files):
    with pytest.raises(openai.BadRequestError) as empty:
        files.create(file=("a.txt", b""), purpose="user_data")
    assert "empty" in empty.value.message and empty.value.param == "file"
    with pytest.raises(openai.BadRequestError) as limit:
        files.list(limit=10_001)
    assert limit.value.param == "limit"
    with make_client(api_key="nobody") as nobody, pytest.raises(openai.AuthenticationError):
        nobody.files.list()


def test_a_file_that_is_too_large_is_refused_while_it_is_sent(files):
    with pytest.raises(openai.APIStatusError) as refused:
        files.create(file=("large.bin", bytes(MAX_BYTES + (4 << 20))), purpose="user_data")
    assert refused.value.status_code == 413
    assert str(MAX_BYTES) in refused.value.message
    assert list(files.list()) == []


def test_answers_fit_the_types_to_the_letter():
    with make_client(api_key=FILES_KEY, _strict_response_validation=True) as client:
        file = client.files.create(file=("a.txt", b"mine"), purpose="user_data")
        assert file.id in [one.id for one in client.files.list()]
        client.files.retrieve(file.id)
        client.files.delete(file.id)
