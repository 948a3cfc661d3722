"""What every route needs: the parts of this server and the tenant of this request."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Literal, ParamSpec, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from fastapi import Depends, Query, Request

from rag_api.wiring import Graft

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
_waiting: RunVar[CapacityLimiter] = RunVar("waiting for answers")


def graft_of(request: Request) -> Graft:
    """Give the server's parts."""
    graft: Graft = request.app.state.graft
    return graft


def tenant_of(request: Request) -> str:
    """Give the tenant that the key check found."""
    tenant: str = request.state.tenant
    return tenant


GraftPart = Annotated[Graft, Depends(graft_of)]
Tenant = Annotated[str, Depends(tenant_of)]
After = Annotated[str | None, Query(description="The id of the last item of the page before.")]
Limit = Annotated[int, Query(ge=1, le=10_000)]
Order = Annotated[Literal["asc", "desc"], Query()]


async def in_thread(
    work: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """Run blocking work off the event loop."""
    return await anyio.to_thread.run_sync(lambda: work(*args, **kwargs))


async def wait_in_thread(
    work: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result:
    """Wait for the model off the event loop, in none of the threads that other work shares.

    The engine's queue bounds how many wait: it refuses what is beyond it.
    """
    limiter = _waiting.get(None)
    if limiter is None:
        limiter = CapacityLimiter(math.inf)
        _waiting.set(limiter)
    return await anyio.to_thread.run_sync(lambda: work(*args, **kwargs), limiter=limiter)
