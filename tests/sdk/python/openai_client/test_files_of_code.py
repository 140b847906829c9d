"""Files into the sandbox and out of it, seen by the official SDK: cited, and fetched out of their container."""

import openai
import pytest

from conftest import make_client
from files_of_sdk import FILES_KEY, OTHER_KEY, TABLES, check_report


def ask(client, model, streamed, uploads, as_parts):
    """An answer to the uploads, named in the message or for the container."""
    container = {"type": "auto"} if as_parts else {"type": "auto", "file_ids": uploads}
    parts = [{"type": "input_file", "file_id": upload} for upload in uploads] if as_parts else []
    request = {
        "model": model,
        "tools": [{"type": "code_interpreter", "container": container}],
        "input": [{"role": "user", "content": [*parts, {"type": "input_text", "text": "Make a report."}]}],
    }
    if not streamed:
        return client.responses.create(**request)
    with client.responses.stream(**request) as stream:
        for _ in stream:
            pass
        return stream.get_final_response()


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("model", ["code-report", "responses--code-report"])
@pytest.mark.parametrize("as_parts", [False, True])
def test_tables_go_in_and_a_chart_and_a_workbook_come_out(model, streamed, as_parts):
    with make_client(api_key=FILES_KEY) as client, make_client(api_key=OTHER_KEY) as other:
        uploads = [
            client.files.create(file=("data.csv", table, "text/csv"), purpose="user_data").id for table in TABLES
        ]
        response = ask(client, model, streamed, uploads, as_parts)
        (call,) = [item for item in response.output if item.type == "code_interpreter_call"]
        text = response.output[-1].content[0]
        cited = {}
        for citation in text.annotations:
            assert citation.type == "container_file_citation"
            assert citation.container_id == call.container_id
            words = text.text[citation.start_index : citation.end_index]
            assert words == f"sandbox:/mnt/data/{citation.filename}"
            cited[citation.filename] = citation.file_id
        files = client.containers.files
        found = {}
        for name, file_id in cited.items():
            file = files.retrieve(file_id, container_id=call.container_id)
            found[name] = files.content.retrieve(file_id, container_id=call.container_id).read()
            assert (file.id, file.object, file.container_id) == (file_id, "container.file", call.container_id)
            assert (file.path, file.source, file.bytes) == (f"/mnt/data/{name}", "assistant", len(found[name]))
            with pytest.raises(openai.NotFoundError):
                other.containers.files.content.retrieve(file_id, container_id=call.container_id)
        check_report(found)
        for file_id in cited.values():
            files.delete(file_id, container_id=call.container_id)
            with pytest.raises(openai.NotFoundError) as gone:
                files.retrieve(file_id, container_id=call.container_id)
            assert file_id in gone.value.message
        assert [client.files.content(upload).read() for upload in uploads] == TABLES
        for upload in uploads:
            client.files.delete(upload)
        assert list(client.files.list()) == []
