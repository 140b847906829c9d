"""The stack under test comes from the environment: whoever starts pytest has started it."""

import os

import openai
import pytest

BASE_URL = os.environ["OTARI_BASE_URL"] + "/v1"
KEY = os.environ["OTARI_KEY"]


def make_client(**options):
    """A client that never retries: a retry would hide what went wrong the first time."""
    return openai.OpenAI(**{"base_url": BASE_URL, "api_key": KEY, "max_retries": 0, "timeout": 60, **options})


@pytest.fixture
def client():
    with make_client() as client:
        yield client


@pytest.fixture
def strict_client():
    """A client that refuses an answer its types do not describe."""
    with make_client(_strict_response_validation=True) as client:
        yield client
