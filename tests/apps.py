"""Small HTTP servers of aiohttp on a free port of this machine."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def running(app: web.Application) -> AsyncIterator[str]:
    """Run an application; its address."""
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def answering(answer: Handler, method: str = "*") -> AsyncIterator[str]:
    """Run a server that answers every request of a method by one function; its address."""
    app = web.Application()
    app.router.add_route(method, "/{path:.*}", answer)
    async with running(app) as url:
        yield url
