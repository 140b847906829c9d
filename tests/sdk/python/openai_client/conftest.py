"""The official SDK, as the tests of this folder use it."""

import openai
import pytest

from conversations import KEY, TIMEOUT, V1_URL


def make_client(**options):
    """A client that never retries: a retry would hide what went wrong the first time."""
    return openai.OpenAI(**{"base_url": V1_URL, "api_key": KEY, "max_retries": 0, "timeout": TIMEOUT, **options})


@pytest.fixture
def client():
    with make_client() as client:
        yield client


@pytest.fixture
def strict_client():
    """A client that refuses an answer its types do not describe."""
    with make_client(_strict_response_validation=True) as client:
        yield client


def accumulated(client, **request):
    """The SDK's own accumulator over a stream; its `.stream()` helper refuses tools it does not know."""
    from openai.lib.streaming.chat import ChatCompletionStreamState

    state = ChatCompletionStreamState()
    for chunk in client.chat.completions.create(**request, stream=True):
        state.handle_chunk(chunk)
    return state.get_final_completion()
