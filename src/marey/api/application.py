"""The API as one application over a service."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import FastAPI

from marey.api import (
    cluster_routes,
    conflict_routes,
    diagnosis_routes,
    finding_routes,
    live_routes,
    own_metrics,
    rule_routes,
    sample_routes,
    source_routes,
    upload_routes,
    view_routes,
    workload_routes,
)
from marey.api.guard import Access, Guard
from marey.api.pages import WebApp
from marey.api.problems import add_handlers
from marey.app.service import Service

ROOT = "/api/v1"

# Registered by listing; the order is that of the OpenAPI document.
ROUTERS = (
    cluster_routes.router,
    source_routes.router,
    conflict_routes.router,
    workload_routes.router,
    sample_routes.router,
    diagnosis_routes.router,
    rule_routes.router,
    finding_routes.router,
    upload_routes.router,
    view_routes.router,
)


def build_app(service: Service | None = None, access: Access | None = None) -> FastAPI:
    """The application; without a service only its OpenAPI document can be had."""
    app = FastAPI(
        title="Marey",
        version=version("marey"),
        summary="GPU clusters: who holds what, who waits, what is slow.",
        openapi_url=f"{ROOT}/openapi.json",
        # Their pages load scripts from elsewhere; the document itself is offered.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    app.state.clients = live_routes.LiveClients()
    add_handlers(app)
    for router in ROUTERS:
        app.include_router(router, prefix=ROOT)
    app.include_router(live_routes.router)
    app.include_router(own_metrics.router)
    # Not mounted: a mount at the root would hide that a path has other methods (405).
    app.router.default = WebApp()
    app.add_middleware(Guard, access=access or Access())
    return app
