"""The official SDK, as the tests of this folder use it."""

import anthropic
import pytest

from conversations import KEY, ROOT_URL, TIMEOUT

# Before 1.0 the server tools' types live in the beta namespace alone.
IS_OLD = int(anthropic.__version__.split(".")[0]) < 1


def make_client(**options):
    """A client that never retries: a retry would hide what went wrong the first time."""
    return anthropic.Anthropic(
        **{"base_url": ROOT_URL, "api_key": KEY, "max_retries": 0, "timeout": TIMEOUT, **options}
    )


@pytest.fixture
def client():
    with make_client() as client:
        yield client


@pytest.fixture
def strict_client():
    """A client that refuses an answer its types do not describe."""
    with make_client(_strict_response_validation=True) as client:
        yield client


def messages_of(client):
    return client.beta.messages if IS_OLD else client.messages
