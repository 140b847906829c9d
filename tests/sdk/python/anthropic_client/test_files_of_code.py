"""Files into the sandbox and out of it, seen by the official SDK."""

import pytest

from conftest import make_client, messages_of
from files_of_sdk import FILES_KEY, TABLES, check_report

TOOL = {"type": "code_execution_20250825", "name": "code_execution"}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("model", ["code-report", "messages--code-report"])
def test_tables_go_in_and_a_chart_and_a_workbook_come_out(model, streamed):
    with make_client(api_key=FILES_KEY) as client:
        files = client.beta.files
        uploads = [files.upload(file=("data.csv", table, "text/csv")).id for table in TABLES]
        content = [{"type": "container_upload", "file_id": upload} for upload in uploads]
        request = {
            "model": model,
            "max_tokens": 1024,
            "tools": [TOOL],
            "messages": [{"role": "user", "content": [*content, {"type": "text", "text": "Make a report."}]}],
        }
        if streamed:
            with messages_of(client).stream(**request) as stream:
                message = stream.get_final_message()
        else:
            message = messages_of(client).create(**request)
        results = [block.content for block in message.content if block.type == "code_execution_tool_result"]
        assert [(result.stdout, result.return_code) for result in results] == [("total 100\n", 0)]
        outputs = [output.file_id for output in results[0].content]
        found = {}
        for output in outputs:
            file = files.retrieve_metadata(output)
            assert file.downloadable
            found[file.filename] = files.download(output).read()
        check_report(found)
        assert [files.download(upload).read() for upload in uploads] == TABLES
        for file_id in uploads + outputs:
            files.delete(file_id)
