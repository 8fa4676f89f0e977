"""Who is asking: sessions, API tokens, the owner's key, proxies and OpenID providers."""
