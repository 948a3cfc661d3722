"""Chat completions through the stock openai client, against a real server with a tiny backbone."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.rag_api.api_server import Server, put_in, wait_until

FACT = "The Zorbex pump moves ten litres a minute. It was built in Trieste."
ASK = [{"role": "user", "content": "How many litres does the Zorbex pump move?"}]


@pytest.fixture(scope="module")
def store_id(server: Server, alice: openai.OpenAI) -> Iterator[str]:
    """A store of two documents whose token memory is built."""
    store = alice.vector_stores.create(name=f"chat-{uuid.uuid4().hex}")
    put_in(alice, store.id, "pump.md", FACT)
    put_in(alice, store.id, "tea.md", "Tea is poured at four in the old kitchen of the mill.")

    def is_ready() -> bool:
        with server.http("key-of-alice") as http:
            status = http.get(f"/v1/vector_stores/{store.id}/memory").json()
            return bool(status["ready"] == 2 and not status["pending"])

    wait_until(is_ready)
    yield store.id
    alice.vector_stores.delete(store.id)


def chat(client: openai.OpenAI, **more: Any) -> Any:
    return client.chat.completions.create(**{
        "model": "tiny", "messages": ASK, "max_tokens": 12, "temperature": 0, **more
    })  # fmt: skip


def with_store(store_id: str, mode: str | None, **more: Any) -> dict[str, Any]:
    retrieval = {"vector_store_ids": [store_id], **({"mode": mode} if mode else {}), **more}
    return {"retrieval": retrieval, "include": ["tokens"]}


def streamed(client: openai.OpenAI, **more: Any) -> tuple[str, list[Any]]:
    chunks = list(chat(client, stream=True, **more))
    words = [c.choices[0].delta.content or "" for c in chunks if c.choices]
    return "".join(words), chunks


def test_a_conversation_without_stores_is_the_frozen_model(alice: openai.OpenAI) -> None:
    answer = chat(alice)
    assert answer.object == "chat.completion"
    assert answer.graft["mode"] == "none"
    assert answer.usage.completion_tokens <= 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.choices[0].finish_reason in ("stop", "length")


@pytest.mark.parametrize("mode", ["none", "knn_lm"])
def test_a_stream_says_what_the_whole_answer_says(
    alice: openai.OpenAI, store_id: str, mode: str
) -> None:
    extra = with_store(store_id, mode)
    whole = chat(alice, extra_body=extra, seed=3, temperature=0.8)
    text, chunks = streamed(
        alice, extra_body=extra, seed=3, temperature=0.8, stream_options={"include_usage": True}
    )
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason


def test_the_default_mode_is_both_where_keys_exist(alice: openai.OpenAI, store_id: str) -> None:
    assert chat(alice, extra_body=with_store(store_id, None)).graft["mode"] == "both"


def test_every_token_says_which_documents_moved_it(
    server: Server, alice: openai.OpenAI, store_id: str
) -> None:
    extra = with_store(store_id, "knn_lm") | {"knn": {"lambda": 0.9, "k": 8}}
    answer = chat(alice, extra_body=extra)
    tokens = answer.graft["tokens"]
    assert "".join(token["text"] for token in tokens) == answer.choices[0].message.content
    sources = [source for token in tokens for source in token["sources"]]
    assert sources
    with server.http("key-of-alice") as http:
        texts = {
            name: http.get(f"/v1/vector_stores/{store_id}/texts/{name}").text
            for name in ("pump.md", "tea.md")
        }
    for token in tokens:
        assert sum(source["share"] for source in token["sources"]) <= 1 + 1e-6
        for source in token["sources"]:
            assert 0 < source["share"] <= 1
            assert 0 <= source["start"] < source["end"] <= len(texts[source["document"]])


def test_lambda_0_is_the_frozen_model(alice: openai.OpenAI, store_id: str) -> None:
    plain = chat(alice, extra_body=with_store(store_id, "none"), logprobs=True)
    mixed = chat(
        alice, extra_body=with_store(store_id, "knn_lm") | {"knn": {"lambda": 0.0}}, logprobs=True
    )
    assert mixed.choices[0].message.content == plain.choices[0].message.content
    values = [[t.logprob for t in a.choices[0].logprobs.content] for a in (plain, mixed)]
    assert values[0] == values[1]
    assert not any(token["sources"] for token in mixed.graft["tokens"])


def test_logprobs_are_those_of_the_tokens_sent(alice: openai.OpenAI) -> None:
    answer = chat(alice, logprobs=True, top_logprobs=3)
    content = answer.choices[0].logprobs.content
    for token in content:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 3
        best = [each.logprob for each in token.top_logprobs]
        assert best == sorted(best, reverse=True)
        assert math.isclose(token.logprob, best[0], abs_tol=1e-5)  # greedy


def test_the_same_seed_gives_the_same_text_and_another_seed_another(alice: openai.OpenAI) -> None:
    def at(seed: int) -> str:
        words: str = (
            chat(alice, temperature=1.5, seed=seed, max_tokens=24).choices[0].message.content
        )
        return words

    assert at(5) == at(5)
    assert len({at(seed) for seed in range(5, 9)}) > 1


def test_a_stop_string_ends_the_answer_before_it(alice: openai.OpenAI) -> None:
    whole = chat(alice, max_tokens=24).choices[0].message.content
    assert len(whole) > 6
    stop = whole[3:5]
    cut = chat(alice, max_tokens=24, stop=[stop])
    assert cut.choices[0].message.content == whole[: whole.index(stop)]
    assert cut.choices[0].finish_reason == "stop"
    assert streamed(alice, max_tokens=24, stop=[stop])[0] == whole[: whole.index(stop)]


def test_the_extractive_mode_answers_with_checked_quotes(
    server: Server, alice: openai.OpenAI, store_id: str
) -> None:
    answer = chat(alice, extra_body=with_store(store_id, "extractive"))
    message = answer.choices[0].message
    assert "ten litres" in message.content
    assert message.annotations
    with server.http("key-of-alice") as http:
        for annotation in message.annotations:
            path = f"/v1/vector_stores/{store_id}/texts/{annotation.filename}"
            text = http.get(path).text
            assert annotation.verified is True
            assert text[annotation.start : annotation.end] == annotation.quote
            assert annotation.file_id
    text, chunks = streamed(alice, extra_body=with_store(store_id, "extractive"))
    assert text == message.content
    last = chunks[-1].choices[0].delta.annotations
    assert [each["quote"] for each in last] == [each.quote for each in message.annotations]


@pytest.mark.parametrize("mode", ["rag", "both", "extractive"])
def test_c4_a_question_that_nothing_answers_gets_an_abstention_without_citations(
    alice: openai.OpenAI, store_id: str, mode: str
) -> None:
    question = [{"role": "user", "content": "Which chancellor signed the Kyoto whaling treaty?"}]
    answer = chat(alice, messages=question, extra_body=with_store(store_id, mode, abstain=True))
    assert answer.graft["abstained"] is True
    assert not answer.choices[0].message.annotations
    assert "do not answer" in answer.choices[0].message.content


def test_c3_every_citation_that_is_sent_is_checked(
    server: Server, alice: openai.OpenAI, store_id: str
) -> None:
    answer = chat(alice, max_tokens=48, temperature=1.0, extra_body=with_store(store_id, "rag"))
    assert all(annotation.verified for annotation in answer.choices[0].message.annotations or ())
    assert answer.graft["dropped_markers"] >= 0


def test_documents_without_keys_are_never_passed_over_in_silence(
    local: Any, plain_settings: dict[str, Any]
) -> None:
    store = local.request("POST", "/v1/vector_stores", json={"name": "s"}).json()["id"]
    files = {"file": ("a.md", FACT.encode())}
    file = local.request("POST", "/v1/files", files=files).json()["id"]
    local.request("POST", f"/v1/vector_stores/{store}/files", json={"file_id": file})
    kinds = [job.kind for job in local.graft.index.list_jobs(tenant="default")]
    assert kinds == ["ingest"]
    import threading

    from rag_api.worker import Worker

    assert Worker(local.graft, threading.Event()).run_one()  # the ingestion, not yet the keys
    body = {"model": "tiny", "messages": ASK, "max_tokens": 2}
    body["retrieval"] = {"vector_store_ids": [store], "mode": "both"}
    answer = local.request("POST", "/v1/chat/completions", json=body).json()
    assert any("graft memory build --store s" in text for text in answer["graft"]["warnings"])
    body["retrieval"] = {"vector_store_ids": [store]}
    assert local.request("POST", "/v1/chat/completions", json=body).json()["graft"]["mode"] == "rag"
    local.work()
    body["retrieval"] = {"vector_store_ids": [store]}
    answer = local.request("POST", "/v1/chat/completions", json=body).json()
    assert (answer["graft"]["mode"], answer["graft"]["warnings"]) == ("both", [])


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"n": 2}, "n"),
        ({"tools": []}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"max_tokens": 3, "max_completion_tokens": 3}, "max_tokens"),
        ({"max_tokens": 10**6}, None),
        ({"temperature": 3}, "temperature"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"messages": [{"role": "assistant", "content": "hello"}]}, "messages"),
        ({"messages": []}, "messages"),
        ({"extra_body": {"knn": {"lamda": 0.5}}}, "knn.lamda"),
        ({"extra_body": {"retrieval": {"mode": "magic"}}}, "retrieval.mode"),
        ({"extra_body": {"retrieval": {"mode": "rag"}}}, "retrieval"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
    ],
)
def test_what_is_not_supported_is_an_error_that_names_it(
    alice: openai.OpenAI, wrong: dict[str, Any], param: str | None
) -> None:
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        chat(alice, **wrong)
    assert caught.value.param == param or param is None
    assert caught.value.response.headers["x-should-retry"] == "false"


def test_lambda_above_the_servers_cap_is_refused(alice: openai.OpenAI, store_id: str) -> None:
    extra = with_store(store_id, "knn_lm") | {"knn": {"lambda": 0.99}}
    with pytest.raises(openai.UnprocessableEntityError, match=r"0\.95"):
        chat(alice, extra_body=extra)


def test_an_unknown_model_is_not_found(alice: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="gpt-nothing"):
        chat(alice, model="gpt-nothing")


def test_v1_a_client_that_goes_away_stops_generation_within_a_second(
    server: Server, alice: openai.OpenAI
) -> None:
    body = {"model": "tiny", "messages": ASK, "max_tokens": 2048, "stream": True}
    body |= {"temperature": 1.0, "seed": 1, "logit_bias": {"0": -100, "1": -100, "2": -100}}
    with server.http("key-of-alice") as http:
        with http.stream("POST", "/v1/chat/completions", json=body) as reply:
            assert reply.status_code == 200
            next(reply.iter_bytes())
        started = time.monotonic()
        # The engine runs one request at a time: the next answer waits for the end of the last.
        quick = {"model": "tiny", "messages": ASK, "max_tokens": 1}
        assert http.post("/v1/chat/completions", json=quick).status_code == 200
        assert time.monotonic() - started < 3.0


def test_embeddings_are_unit_vectors_as_numbers_and_as_base64(alice: openai.OpenAI) -> None:
    texts = ["a pump", "一台泵"]
    numbers = alice.embeddings.create(model="wordllama", input=texts, encoding_format="float")
    packed = alice.embeddings.create(model="wordllama", input=texts)
    assert [each.index for each in numbers.data] == [0, 1]
    assert numbers.usage.prompt_tokens > 0
    for a, b in zip(numbers.data, packed.data, strict=True):
        assert a.embedding == pytest.approx(b.embedding)
        assert math.isclose(sum(x * x for x in a.embedding), 1.0, rel_tol=1e-4)
    single = alice.embeddings.create(model="wordllama", input="a pump")
    assert single.data[0].embedding == pytest.approx(packed.data[0].embedding)


@pytest.mark.parametrize(
    "wrong",
    [{"input": [1, 2]}, {"input": [[1], [2]]}, {"input": ""}, {"input": []}, {"dimensions": 7}],
)
def test_embeddings_refuse_what_they_cannot_embed(
    alice: openai.OpenAI, wrong: dict[str, Any]
) -> None:
    with pytest.raises(openai.UnprocessableEntityError):
        alice.embeddings.create(**{"model": "wordllama", "input": "a", **wrong})


def test_models_are_listed_and_found(alice: openai.OpenAI) -> None:
    assert {model.id for model in alice.models.list()} == {"tiny", "wordllama"}
    assert alice.models.retrieve("tiny").owned_by == "graft"
    with pytest.raises(openai.NotFoundError):
        alice.models.retrieve("other")
