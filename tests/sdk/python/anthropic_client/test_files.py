"""The Files API, seen by the official SDK: as if the provider kept the files."""

import asyncio
import io
import pathlib
from datetime import datetime, timedelta, timezone

import anthropic
import pytest

from conftest import IS_OLD, make_client
from conversations import ROOT_URL, TIMEOUT
from files_of_sdk import CONTENT, FILES_KEY, MAX_BYTES, OTHER_KEY, Counter, sha256

# Bytes without a name: the old SDK makes one up, later ones leave it to the service.
NAMELESS = "upload" if IS_OLD else "unnamed"


def namespaces(client):
    return {"beta": client.beta.files} if IS_OLD else {"beta": client.beta.files, "general": client.files}


@pytest.fixture(params=["beta"] if IS_OLD else ["beta", "general"])
def files(request):
    with make_client(api_key=FILES_KEY) as client:
        yield namespaces(client)[request.param]
        for file in list(namespaces(client)["beta"].list()):
            client.beta.files.delete(file.id)


@pytest.fixture
def others():
    with make_client(api_key=OTHER_KEY) as client:
        yield client.beta.files
        for file in list(client.beta.files.list()):
            client.beta.files.delete(file.id)


def downloaded(files, file):
    return files.download(file.id).read()


def test_every_form_of_an_upload_is_kept_byte_for_byte(files, tmp_path):
    path = tmp_path / "a b é.csv"
    path.write_bytes(CONTENT)
    with open(path, "rb") as stream:
        for form, name, kind in [
            (pathlib.Path(path), "a b é.csv", "text/csv"),
            (stream, "a b é.csv", "text/csv"),
            (CONTENT, NAMELESS, "application/octet-stream"),
            (io.BytesIO(CONTENT), NAMELESS, "application/octet-stream"),
            (("测试.md", CONTENT), "测试.md", "text/markdown"),
            (("b.bin", io.BytesIO(CONTENT), "text/plain"), "b.bin", "text/plain"),
            (("dir/c.bin", CONTENT, "application/x-own"), "c.bin", "application/x-own"),
        ]:
            file = files.upload(file=form)
            assert (file.filename, file.mime_type, file.size_bytes, file.type) == (name, kind, len(CONTENT), "file")
            assert file.downloadable is True
            assert abs(datetime.now(timezone.utc) - file.created_at) < timedelta(minutes=5)
            assert downloaded(files, file) == CONTENT
            assert files.retrieve_metadata(file.id) == file


def test_the_async_client_uploads_and_reads_as_well():
    async def talk():
        async with anthropic.AsyncAnthropic(
            base_url=ROOT_URL, api_key=FILES_KEY, max_retries=0, timeout=TIMEOUT
        ) as client:
            file = await client.beta.files.upload(file=("a.bin", CONTENT))
            content = await (await client.beta.files.download(file.id)).read()
            found = [one.id async for one in client.beta.files.list(limit=1)]
            await client.beta.files.delete(file.id)
            return file.id, content, found

    file_id, content, found = asyncio.run(talk())
    assert content == CONTENT
    assert file_id in found


def test_a_download_streams_into_a_file(files, tmp_path):
    content = CONTENT * 4000
    file = files.upload(file=("large.bin", content))
    target = tmp_path / "large.bin"
    with files.with_streaming_response.download(file.id) as response:
        response.stream_to_file(target)
        assert response.headers["content-length"] == str(len(content))
    assert sha256(target.read_bytes()) == sha256(content)


def test_a_list_gives_every_file_once_with_others_in_between(files, others):
    expected = []
    for number in range(7):
        expected.insert(0, files.upload(file=(f"{number}.txt", b"mine")).id)
        others.upload(file=(f"{number}.txt", b"theirs"))
    for limit, requests in [(2, 4), (3, 3), (7, 1), (100, 1)]:
        counter = Counter()
        with make_client(api_key=FILES_KEY, http_client=counter.transport()) as client:
            for name, namespace in namespaces(client).items():
                counter.requests.clear()
                found = [file.id for file in namespace.list(limit=limit)]
                assert found == expected, name
                assert len(counter.requests) == requests, (name, limit)


def test_an_empty_list_ends(files):
    assert list(files.list()) == []


@pytest.mark.skipif(not IS_OLD, reason="later SDKs have no such cursor")
def test_a_list_goes_backwards_too(files):
    made = [files.upload(file=(f"{number}.txt", b"mine")).id for number in range(5)]
    page = files.list(limit=2, before_id=made[0])
    assert [file.id for file in page.data] == [made[2], made[1]]
    assert [file.id for file in page] == [made[2], made[1], made[4], made[3]]


@pytest.mark.skipif(IS_OLD, reason="later SDKs alone can ask so")
def test_files_are_looked_up_by_their_ids(files):
    made = [files.upload(file=(f"{number}.txt", b"mine")).id for number in range(3)]
    found = [file.id for file in files.list(ids=[made[0], "file_011CNha8iCJcU1wXNR6q4V8w", made[2]])]
    assert sorted(found) == sorted([made[0], made[2]])


@pytest.mark.skipif(IS_OLD, reason="later SDKs alone can say so")
def test_a_file_says_when_it_expires(files):
    file = files.upload(file=("a.txt", b"mine"), expires_in_seconds=3600)
    assert abs(file.expires_at - file.created_at - timedelta(hours=1)) < timedelta(seconds=5)
    assert files.upload(file=("b.txt", b"mine")).expires_at is None
    with pytest.raises(anthropic.BadRequestError) as refused:
        files.upload(file=("a.txt", b"mine"), expires_in_seconds=3599)
    assert "expires_in_seconds" in refused.value.message


def test_a_deleted_file_is_gone(files):
    file = files.upload(file=("a.txt", b"mine"))
    deleted = files.delete(file.id)
    assert (deleted.id, deleted.type) == (file.id, "file_deleted")
    for ask in (files.delete, files.retrieve_metadata, files.download):
        with pytest.raises(anthropic.NotFoundError) as gone:
            ask(file.id)
        error = gone.value
        assert error.body["error"]["type"] == "not_found_error"
        assert file.id in error.body["error"]["message"]
        assert error.request_id and error.request_id == error.body["request_id"]


def test_a_file_of_another_tenant_is_as_if_it_were_not_there(files, others):
    theirs = others.upload(file=("a.txt", b"theirs")).id
    for file_id in [theirs, "file_011CNha8iCJcU1wXNR6q4V8w", "a/../b?x", "%00"]:
        for ask in (files.retrieve_metadata, files.download, files.delete):
            with pytest.raises(anthropic.NotFoundError):
                ask(file_id)
    assert downloaded(others, others.retrieve_metadata(theirs)) == b"theirs"


def test_what_is_refused_says_why(files):
    with pytest.raises(anthropic.BadRequestError) as empty:
        files.upload(file=("a.txt", b""))
    assert "empty" in empty.value.message
    with pytest.raises(anthropic.BadRequestError) as limit:
        files.list(limit=1001)
    assert "limit" in limit.value.message
    with make_client(api_key="nobody") as nobody, pytest.raises(anthropic.AuthenticationError):
        nobody.beta.files.list()


def test_a_file_that_is_too_large_is_refused_while_it_is_sent(files):
    with pytest.raises(anthropic.APIStatusError) as refused:
        files.upload(file=("large.bin", bytes(MAX_BYTES + (4 << 20))))
    assert refused.value.status_code == 413
    assert refused.value.body["error"]["type"] == "request_too_large"
    assert str(MAX_BYTES) in refused.value.message
    assert list(files.list()) == []


def test_answers_fit_the_types_to_the_letter():
    with make_client(api_key=FILES_KEY, _strict_response_validation=True) as client:
        for namespace in namespaces(client).values():
            file = namespace.upload(file=("a.txt", b"mine"))
            assert file.id in [one.id for one in namespace.list(limit=1000)]
            namespace.retrieve_metadata(file.id)
            namespace.delete(file.id)
