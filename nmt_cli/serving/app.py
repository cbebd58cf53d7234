"""The ASGI application: all interfaces, their errors, and the page."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI, Request
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from .. import __version__
from . import deepl, libretranslate, own
from .context import Context
from .middleware import Observed
from .refusal import JSON, RESTORED, Refusal, body_of

PAGE = Path(__file__).parent / "page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src "
    "'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Content security policy of the page: it loads nothing from other hosts, and has no inline scripts or styles."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
EXPOSED = ("Retry-After", RESTORED)
"""Headers of answers that pages of other origins may read."""


def build_app(context: Context) -> FastAPI:
    """Return the application of a server.

    It has /openapi.json, but not FastAPI's documentation pages, which load scripts from other hosts.
    """
    app = FastAPI(
        title="nmt serve",
        version=__version__,
        description="Machine translation: LibreTranslate's interface, and DeepL's below /v2.",
        docs_url=None,
        redoc_url=None,
    )
    app.state.context = context
    for interface in (libretranslate, deepl, own):
        app.include_router(interface.router)
    page = _Page(directory=PAGE)
    app.mount("/page", page)
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(Exception, _failed)
    if context.settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=context.settings.cors,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=EXPOSED,
        )
    app.add_middleware(Observed, context=context)

    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        return await page.get_response("index.html", request.scope)

    return app


class _Page(StaticFiles):
    """The files of the page, with headers that forbid browsers to load anything else."""

    def file_response(self, *args: object, **kwargs: object) -> Response:
        response = super().file_response(*args, **kwargs)  # type: ignore[arg-type]
        response.headers.update(HEADERS)
        return response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""

        scope["route"] = self
        await super().__call__(scope, receive, send)

    path = "/page"


async def _refused(request: Request, error: Exception) -> Response:
    """Answer a refused request; also an unknown path, or a method that a path does not have."""
    assert isinstance(error, Refusal)
    return JSONResponse(body_of(request.scope["path"], error.detail), error.status_code, error.headers)


async def _failed(request: Request, error: Exception) -> Response:
    """Answer after an error of the server itself. The log has the error."""
    text = "The server has an error of its own; its log says more."
    return JSONResponse(body_of(request.scope["path"], text), 500, media_type=JSON)  # `Observed` does not see it
