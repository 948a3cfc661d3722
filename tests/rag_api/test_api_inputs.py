"""Bodies and names that look harmless: refused at the door, or kept exactly; never a 500."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.rag_api.api_server import Local

HALF = "\\ud800"


def send(local: Local, path: str, body: str) -> httpx.Response:
    """Post JSON as these very characters, which a client library would not let through."""
    headers = {"content-type": "application/json"}
    return local.request("POST", path, content=body.encode("utf-8"), headers=headers)


def make_store(local: Local, **more: Any) -> str:
    made = local.request("POST", "/v1/vector_stores", json={"name": "s", **more})
    assert made.status_code == 200, made.text
    return str(made.json()["id"])


def upload(local: Local, name: str, words: bytes = b"some words", **fields: str) -> str:
    made = local.request("POST", "/v1/files", files={"file": (name, words)}, data=fields)
    assert made.status_code == 200, made.text
    return str(made.json()["id"])


def refused(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 422, (answer.status_code, answer.text)
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = json.loads(answer.content.decode("utf-8"))
    return problem


def test_half_a_surrogate_pair_is_refused_wherever_a_body_holds_it(local: Local) -> None:
    store, file = make_store(local), upload(local, "a.md")
    inside = f"/v1/vector_stores/{store}"
    for path, body in {
        f"{inside}/search": f'{{"query": "a{HALF}b"}}',
        f"{inside}/documents/delete": f'{{"documents": ["x", "{HALF}"]}}',
        f"{inside}/file_batches": f'{{"file_ids": ["{HALF}"]}}',
        f"{inside}/files": f'{{"file_id": "{file}", "attributes": {{"u": "{HALF}"}}}}',
        "/v1/vector_stores": f'{{"name": "made", "metadata": {{"{HALF}": "v"}}}}',
        "/v1/embeddings": f'{{"model": "m", "input": ["{HALF}"]}}',
        "/v1/chat/completions": '{"model": "tiny", "messages": [{"role": "user", "content": '
        f'[{{"type": "text", "text": "{HALF}"}}]}}]}}',
    }.items():
        assert "half a surrogate pair" in refused(send(local, path, body))["detail"], path
    problem = refused(send(local, f"{inside}/files", f'{{"file_id": "{HALF}"}}'))
    assert problem["error"]["param"] == "file_id"
    names = [each["name"] for each in local.request("GET", "/v1/vector_stores").json()["data"]]
    assert names == ["s"]


def test_an_unknown_key_of_half_a_surrogate_pair_is_answered(local: Local) -> None:
    refused(send(local, "/v1/vector_stores", f'{{"{HALF}": 1}}'))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-1e999", str(2**70), str(-(2**70))])
def test_a_number_that_cannot_be_stored_is_refused(local: Local, number: str) -> None:
    store, file = make_store(local), upload(local, "a.md")
    path = f"/v1/vector_stores/{store}/files"
    body = f'{{"file_id": "{file}", "attributes": {{"x": {number}}}}}'
    assert "64-bit" in refused(send(local, path, body))["detail"]
    assert local.request("GET", "/v1/jobs").json()["data"] == []


@pytest.mark.parametrize("attributes", [{"a\0": 1}, {"a": "\0"}, {"": 1}, {"k" * 5000: 1}])
@pytest.mark.parametrize("route", ["files", "file_batches"])
def test_attributes_that_cannot_be_stored_are_refused_at_the_door(
    local: Local, attributes: dict[str, Any], route: str
) -> None:
    store, file = make_store(local), upload(local, "a.md")
    body: dict[str, Any] = {"attributes": attributes}
    body |= {"file_id": file} if route == "files" else {"file_ids": [file]}
    problem = refused(local.request("POST", f"/v1/vector_stores/{store}/{route}", json=body))
    assert problem["error"]["param"] == "attributes"
    assert local.request("GET", "/v1/jobs").json()["data"] == []


def test_a_purpose_is_chosen_before_the_list_is_cut_into_pages(local: Local) -> None:
    wanted = [upload(local, f"old-{i}.md", purpose="batch") for i in range(3)]
    for i in range(4):
        upload(local, f"new-{i}.md")
    seen: list[str] = []
    after: dict[str, str] = {}
    for _ in range(3):
        query = {"purpose": "batch", "limit": "2", **after}
        found = local.request("GET", "/v1/files", params=query).json()
        seen += [each["id"] for each in found["data"]]
        if not found["has_more"]:
            break
        after = {"after": found["last_id"]}
    assert seen == wanted[::-1]
    assert refused(local.request("GET", "/v1/files", params={"purpose": "x"}))


@pytest.mark.parametrize("route", ["files", "vector_stores", "jobs", "vector_stores/{store}/files"])
def test_a_page_after_an_item_that_is_gone_is_not_the_first_page(local: Local, route: str) -> None:
    path = "/v1/" + route.format(store=make_store(local))
    assert local.request("GET", path).status_code == 200
    answer = local.request("GET", path, params={"after": "gone"})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_a_page_goes_on_after_an_item_that_left_the_filter_meanwhile(local: Local) -> None:
    store = make_store(local)
    path = f"/v1/vector_stores/{store}/files"
    files = [upload(local, f"{i}.md", b"words %d" % i) for i in range(3)]
    for file in files:
        local.request("POST", path, json={"file_id": file})
    query = {"filter": "in_progress", "order": "asc", "limit": "1"}
    (first,) = local.request("GET", path, params=query).json()["data"]
    job = first["graft"]["job_id"]
    local.request("POST", f"/v1/jobs/{job}/cancel")
    rest = local.request("GET", path, params={**query, "after": first["id"], "limit": "5"}).json()
    assert [each["id"] for each in rest["data"]] == [f for f in files if f != first["id"]]
    waiting = {"state": "queued", "after": job, "order": "asc"}
    assert len(local.request("GET", "/v1/jobs", params=waiting).json()["data"]) == 2


def test_a_store_with_an_unknown_file_is_not_created(local: Local) -> None:
    file = upload(local, "a.md")
    body = {"name": "s", "file_ids": [file, "file-unknown"]}
    answer = local.request("POST", "/v1/vector_stores", json=body)
    assert answer.status_code == 404, answer.text
    assert "file-unknown" in answer.json()["detail"]
    many = local.graft.settings.limits.batch_items + 1
    assert refused(
        local.request("POST", "/v1/vector_stores", json={"name": "s", "file_ids": [file] * many})
    )
    assert local.request("GET", "/v1/vector_stores").json()["data"] == []
    assert local.request("GET", "/v1/jobs").json()["data"] == []
    store = make_store(local, file_ids=[file])
    shown = local.request("GET", f"/v1/vector_stores/{store}/files/{file}").json()
    assert shown["status"] == "in_progress"


@pytest.mark.parametrize("splitter", ["bogus", "CharacterTextSplitter:pages", "structure:words"])
def test_an_unknown_splitter_is_refused_when_the_store_is_created(
    local: Local, splitter: str
) -> None:
    strategy = {"type": "auto", "splitter": splitter}
    body = {"name": "s", "chunking_strategy": strategy}
    problem = refused(local.request("POST", "/v1/vector_stores", json=body))
    assert "RecursiveCharacterTextSplitter" in problem["detail"]
    good = {"type": "auto", "splitter": "RecursiveCharacterTextSplitter:words"}
    make_store(local, chunking_strategy=good)
    chunking = local.graft.settings.chunking.model_copy(update={"splitter": splitter})
    other = Local(local.graft.settings.model_copy(update={"chunking": chunking}))
    assert refused(other.request("POST", "/v1/vector_stores", json={"name": "by settings"}))
    other.graft.close()


@pytest.mark.parametrize("name", ["e\u0301.md", "\u00e9.md", "dir/\u1100\u1161 \u212b.md"])
def test_a_document_is_found_under_the_name_that_it_came_with(local: Local, name: str) -> None:
    inside = f"/v1/vector_stores/{make_store(local)}"
    path = f"{inside}/documents/{quote(name)}"
    assert local.request("PUT", path, content=b"Ten litres a minute.").status_code == 202
    local.work()
    shown = local.request("GET", path)
    assert (shown.status_code, shown.json()["document"]) == (200, name)
    assert local.request("GET", f"{inside}/texts/{quote(name)}").text == "Ten litres a minute."
    assert [d["document"] for d in local.request("GET", f"{inside}/documents").json()["data"]] == [
        name
    ]
    assert local.request("DELETE", path).status_code == 200
    assert local.request("GET", path).status_code == 404
    file = upload(local, name)
    assert local.request("GET", f"/v1/files/{file}").json()["filename"] == name


def test_names_that_look_alike_are_two_documents(local: Local) -> None:
    inside = f"/v1/vector_stores/{make_store(local)}"
    for name in ("e\u0301.md", "\u00e9.md"):
        local.request("PUT", f"{inside}/documents/{quote(name)}", content=name.encode())
    local.work()
    both = {"documents": ["e\u0301.md", "\u00e9.md"]}
    done = local.request("POST", f"{inside}/documents/delete", json=both).json()["data"]
    assert [item["deleted"] for item in done] == [True, True]


@pytest.mark.parametrize("kind", ["vector_stores", "files"])
def test_listing_and_deleting_page_by_page_reaches_the_end(local: Local, kind: str) -> None:
    for number in range(5):
        if kind == "files":
            files = {"file": (f"{number}.md", f"Line {number}.".encode())}
            local.request("POST", "/v1/files", files=files)
        else:
            local.request("POST", "/v1/vector_stores", json={"name": f"s{number}"})
    seen: list[str] = []
    query: dict[str, str] = {"limit": "2"}
    while True:
        listed = local.request("GET", f"/v1/{kind}", params=query).json()
        for item in listed["data"]:
            assert local.request("DELETE", f"/v1/{kind}/{item['id']}").status_code == 200
            seen.append(item["id"])
        if not listed["has_more"]:
            break
        query["after"] = listed["last_id"]
    assert len(set(seen)) == len(seen) == 5
