"""The conversations of `../conversations.json`, held by one client after the other.

A client's folder says `test_conversation = conversations(Client(), …)`. All it adds is how that client asks, and where in
its answers text, runs and calls stand. INVARIANT: what is asked and what must come back stands in the JSON file alone.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest

# The stack under test comes from the environment: whoever starts pytest has started it.
ROOT_URL = os.environ["OTARI_BASE_URL"]
V1_URL = ROOT_URL + "/v1"
KEY = os.environ["OTARI_KEY"]
# No answer takes longer, in seconds. No client retries: that would hide what went wrong the first time.
TIMEOUT = 60

SCRIPT = json.loads((Path(__file__).parent.parent / "conversations.json").read_text())


@dataclass
class Run:
    """A piece of code that ran, as the client shows it.

    `output` is everything it printed; `failed` is None if the client does not tell."""

    code: str
    output: str
    failed: bool | None


@dataclass
class Call:
    """A call of the caller's own function."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass
class Turn:
    """What one answer shows."""

    text: str = ""
    runs: list[Run] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)


class Conversation(Protocol):
    """A conversation that keeps its history the way this client's users do."""

    def say(self, text: str, streamed: bool) -> Turn:
        """Adds a text of the user and asks."""

    def give(self, call: Call, result: str, streamed: bool) -> Turn:
        """Adds the result of a call and asks."""


class Client(Protocol):
    """A client library, or one of its ways to ask."""

    name: str
    # Whether its answers show runs.
    shows_runs: bool
    # What its histories keep of a run: "results", "code" or "texts".
    keeps: str

    def begin(self, model: str, function: dict[str, Any] | None) -> Conversation:
        """Starts a conversation with code execution and, perhaps, a function of the caller's."""


def conversations(*clients: Client):
    """The test that these clients hold all conversations."""
    cases = [
        pytest.param(client, talk, prefix, streamed, id=f"{client.name}-{talk['name']}-{prefix}{how}")
        for client in clients
        for talk in SCRIPT["conversations"]
        for prefix in talk.get("model_prefixes", SCRIPT["model_prefixes"])
        for streamed, how in [(False, "whole"), (True, "streamed")]
    ]

    @pytest.mark.parametrize("client, talk, prefix, streamed", cases)
    def test_conversation(client, talk, prefix, streamed):
        hold(client, talk, prefix, streamed)

    return test_conversation


def hold(client: Client, talk: dict[str, Any], prefix: str, streamed: bool):
    model = talk["models"].get(client.keeps, talk["models"]["results"])
    conversation = client.begin(prefix + model, SCRIPT["function"] if talk.get("function") else None)
    turn = Turn()
    for expected in talk["turns"]:
        if "say" in expected:
            turn = conversation.say(expected["say"], streamed)
        else:
            turn = conversation.give(turn.calls[-1], expected["give"], streamed)
        for text in expected["texts"]:
            assert text in turn.text, turn
        assert [(call.name, call.arguments) for call in turn.calls] == [
            (call["name"], call["arguments"]) for call in expected["calls"]
        ]
        runs = expected["runs"] if client.shows_runs else []
        assert [run.code for run in turn.runs] == [run["code"] for run in runs]
        for run, wanted in zip(turn.runs, runs, strict=True):
            assert run.failed in (wanted["failed"], None), run
            for output in wanted["outputs"]:
                assert output in run.output, run
