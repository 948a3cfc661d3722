"""Chats that wait for the model take no other request's thread."""

from __future__ import annotations

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
