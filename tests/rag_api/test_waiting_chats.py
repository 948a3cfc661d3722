"""Chats that wait for the model take no other request's thread."""

from __future__ import annotations

import json

import anyio
import httpx
import pytest

from tests.rag_api.api_server import Local

NUM_CHATS = 60  # more than the threads that the other routes share


@pytest.mark.parametrize("stream", [False, True])
def test_other_routes_answer_while_many_chats_wait(local: Local, stream: bool) -> None:
    body = {
        "model": "tiny",
        "max_tokens": 24,
        "stream": stream,
        "logit_bias": {"2": -100},
        "messages": [{"role": "user", "content": "hello"}],
    }
    num_done = 0

    async def chat(client: httpx.AsyncClient) -> None:
        nonlocal num_done
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200
        num_done += 1

    async def measure() -> int:
        transport = httpx.ASGITransport(app=local.app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://graft", timeout=120
        ) as client:
            await client.get("/v1/files")
            await chat(client)
            async with anyio.create_task_group() as tasks:
                for _ in range(NUM_CHATS):
                    tasks.start_soon(chat, client)
                await anyio.sleep(0.5)
                before = num_done
                assert (await client.get("/v1/files")).status_code == 200
                return num_done - before
        raise AssertionError("unreachable")

    done_meanwhile = anyio.run(measure)
    assert num_done == NUM_CHATS + 1
    assert done_meanwhile < 10


def test_v1_an_answer_that_the_server_stops_is_no_clean_end(local: Local) -> None:
    answers: dict[bool, httpx.Response] = {}

    async def chat(client: httpx.AsyncClient, *, stream: bool) -> None:
        body = {
            "model": "tiny",
            "max_tokens": local.graft.settings.generation.max_tokens_cap,
            "stream": stream,
            "logit_bias": {"2": -100},
            "messages": [{"role": "user", "content": "hello"}],
        }
        answers[stream] = await client.post("/v1/chat/completions", json=body)

    async def stop() -> None:
        transport = httpx.ASGITransport(app=local.app)
        engine = local.graft.engine
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://graft", timeout=120) as client,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(lambda: chat(client, stream=True))
            await anyio.sleep(0.5)
            tasks.start_soon(lambda: chat(client, stream=False))
            await anyio.sleep(0.5)
            await anyio.to_thread.run_sync(engine.close)

    anyio.run(stop)
    assert "[DONE]" not in answers[True].text
    assert '"finish_reason": "stop"' not in answers[True].text
    last = answers[True].text.strip().rpartition("data: ")[2]
    assert json.loads(last)["error"]["code"] == "busy"
    assert (answers[False].status_code, answers[False].json()["code"]) == (503, "busy")
