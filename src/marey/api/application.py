"""The API as one application over a service."""

from __future__ import annotations

from importlib.metadata import version

from fastapi import FastAPI

from marey.api import own_metrics
from marey.api.access.authentication import AuthenticationMiddleware
from marey.api.answers import describe_documents
from marey.api.audit.recording import AuditRecording, make_sign_in_recorder
from marey.api.compression import Compression
from marey.api.guard import Access, Guard
from marey.api.limits.connections import WaitingConnections
from marey.api.limits.requests import RequestLimits
from marey.api.pages import WebApp
from marey.api.problems import add_handlers
from marey.api.reverse_proxy import ProxyMiddleware, ProxyRules
from marey.api.routes import (
    callgraph_routes,
    cluster_routes,
    diagnosis_routes,
    finding_routes,
    job_routes,
    live_routes,
    rule_routes,
    sample_routes,
    source_routes,
    trace_run_routes,
    trace_table_routes,
    trace_view_routes,
    upload_routes,
    view_routes,
    workload_routes,
)
from marey.api.routes.site import account_routes, audit_routes, sign_in_routes
from marey.api.routes.training import what_if_routes
from marey.api.routes.waiting import queue_routes
from marey.app.audit.audit_log import AuditLog
from marey.app.service import Service

ROOT = "/api/v1"

# Registered by listing; the order is that of the OpenAPI document.
ROUTERS = (
    cluster_routes.router,
    source_routes.router,
    workload_routes.router,
    job_routes.router,
    queue_routes.router,
    sample_routes.router,
    diagnosis_routes.router,
    rule_routes.router,
    finding_routes.router,
    upload_routes.router,
    callgraph_routes.router,
    trace_run_routes.router,
    trace_table_routes.router,
    trace_view_routes.router,
    what_if_routes.router,
    view_routes.router,
    sign_in_routes.router,
    account_routes.router,
    audit_routes.router,
)


def build_app(
    service: Service | None = None, access: Access | None = None, front: ProxyRules | None = None
) -> FastAPI:
    """Return the application; without a service only its OpenAPI document can be had.

    Unless ``access`` says more, everybody on this machine may look, and nobody change anything.
    """
    access = access or Access()
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
    app.state.access = access.control
    app.state.audit = service.audit if service else AuditLog()
    access.control.on_sign_in = make_sign_in_recorder(app.state.audit)
    app.state.clients = live_routes.LiveClients()
    front = front or ProxyRules()
    app.state.connections = WaitingConnections(is_shared=front.is_proxy)
    app.state.health_threads = None
    add_handlers(app)
    for router in ROUTERS:
        app.include_router(router, prefix=ROOT)
    app.include_router(live_routes.router)
    app.include_router(own_metrics.router)
    # Not mounted: a mount at the root would hide that a path has other methods (405).
    app.router.default = WebApp(prefix=front.prefix)
    app.add_middleware(Compression)
    app.add_middleware(RequestLimits, connections=app.state.connections)
    app.add_middleware(AuthenticationMiddleware, control=access.control)
    app.add_middleware(Guard, access=access)
    app.add_middleware(AuditRecording, log=app.state.audit)
    app.add_middleware(ProxyMiddleware, front=front)
    describe_documents(app, ROUTERS, live_routes.describe_socket())
    return app
