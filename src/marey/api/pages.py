"""The web app: built files, and its one page for every address inside it."""

from __future__ import annotations

from html import escape
from pathlib import Path

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from marey.api.compression import BEST_LEVELS, Encoding, choose_encoding, compress

PACKED_ENDINGS = (".js", ".css", ".svg", ".json", ".wasm")
BUNDLE = Path(__file__).parent / "web"

NOT_BUILT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Marey</title></head>
<body style="font: 16px/1.5 system-ui; margin: 3rem auto; max-width: 40rem">
<h1>Marey runs, but its web app is not built</h1>
<p>This is a source checkout without the bundle. Run <code>make setup</code> and reload.</p>
<p>The API is there: <a href="/api/v1/openapi.json">OpenAPI document</a>,
<a href="/healthz">health</a>, <a href="/metrics">metrics</a>.</p>
</body></html>
"""


class WebApp(StaticFiles):
    """Files of the bundle; any other address without a file's ending gets the page itself."""

    def __init__(self, folder: Path = BUNDLE, *, prefix: str = "") -> None:
        self._folder = folder
        self._prefix = prefix
        self._packed: dict[tuple[str, Encoding], bytes] = {}
        super().__init__(directory=folder, check_dir=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer requests; there is no socket at any of these addresses."""
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})
            return
        if scope["path"].startswith("//"):
            # To a page here, an address of its own that begins so is one of another host.
            raise HTTPException(404)
        await super().__call__(scope, receive, send)

    async def check_config(self) -> None:
        """Accept a bundle that is not built: the page says so."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return the file, the page, or 404."""
        if path == "api" or path.startswith("api/"):
            raise HTTPException(404)
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(405, headers={"Allow": "GET, HEAD"})
        try:
            response = await super().get_response(path, scope)
        except (HTTPException, ValueError) as error:
            if isinstance(error, HTTPException) and error.status_code != 404:
                raise
            return self._page(path)
        if path.startswith("assets/"):
            encoding = choose_encoding(Headers(scope=scope))
            if encoding is not None and path.endswith(PACKED_ENDINGS):
                response = self._get_packed(path, encoding, response)
            # Their names carry a digest of their content.
            response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return response

    def _get_packed(self, path: str, encoding: Encoding, response: Response) -> Response:
        """Return a file compressed; each is packed once, the bundle is small."""
        packed = self._packed.get((path, encoding))
        if packed is None:
            content = (self._folder / path).read_bytes()
            packed = compress(content, encoding, BEST_LEVELS[encoding])
            self._packed[path, encoding] = packed
        headers = {"Content-Encoding": encoding.value, "Vary": "Accept-Encoding"}
        kind = response.headers.get("content-type")
        return Response(packed, media_type=kind, headers=headers)

    def _page(self, path: str) -> Response:
        if "." in path.rsplit("/", 1)[-1] and path != ".":
            raise HTTPException(404)
        index = self._folder / "index.html"
        if not index.is_file():
            return HTMLResponse(NOT_BUILT)
        page = place_page(index.read_text("utf-8"), self._prefix)
        return HTMLResponse(page, headers={"Cache-Control": "no-cache"})


def place_page(page: str, prefix: str) -> str:
    """Return the page with the addresses it loads, and its own prefix, below a proxy's path."""
    meta = f'<meta name="marey-prefix" content="{escape(prefix)}" />\n    <title>'
    return page.replace('="./', f'="{escape(prefix)}/').replace("<title>", meta, 1)
