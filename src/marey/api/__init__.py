"""HTTP and WebSocket over `app`: routes, typed answers, access, limits, the OpenAPI document."""
