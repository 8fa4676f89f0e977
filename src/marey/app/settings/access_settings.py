"""Who may use the server: how people sign in, and which role each group has."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Any

from marey.app.settings.setting_kinds import (
    TEXT,
    TEXTS,
    Kind,
    a_path,
    a_timeout,
    a_url,
    a_word,
    duration,
    one_of,
    setting,
)
from marey.model.access.identity import Privacy, Role
from marey.model.times import DAY_MS, HOUR_MS, MINUTE_MS

MODES = ("auto", "none", "token", "proxy", "oidc")
NOBODY = "refused"


def _read_networks(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError
    return tuple(str(ipaddress.ip_network(one, strict=False)) for one in value)


# What an address is beyond its characters, a pattern cannot say.
_NETWORK = {"type": "string", "pattern": r"^[0-9A-Fa-f:.]*[:.][0-9A-Fa-f:.]*(/[0-9]{1,3})?$"}
NETWORKS = Kind(_read_networks, {"type": "array", "items": _NETWORK})


def a_list(takes: str, meaning: str) -> Any:
    """Return a list of texts that need not be given."""
    return setting(TEXTS, takes, meaning, default=(), shown_as="[]")


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """How people sign in, which role each group has, and what people see of each other."""

    mode: str = setting(
        one_of(*MODES),
        "auto, none, token, proxy or oidc",
        "How people sign in (see access.md); auto: `token` where "
        "`server.token_env` or `server.token_file` is set, else `none`.",
        default="auto",
    )
    privacy: str = setting(
        one_of(*(mode.value for mode in Privacy)),
        "open, pseudonymous, project or own",
        "Whose names and work people who are not operators can see.",
        default="open",
    )
    public_url: str = a_url(
        "The address that browsers use for Marey. With oidc the redirect URI registered at the "
        "provider is this with /api/v1/sign-in/callback; with https cookies are Secure."
    )
    admin_groups: tuple[str, ...] = a_list("a list of groups", "Groups whose members are admins.")
    operator_groups: tuple[str, ...] = a_list(
        "a list of groups", "Groups whose members are operators."
    )
    researcher_groups: tuple[str, ...] = a_list(
        "a list of groups", "Groups whose members are researchers."
    )
    view_only_groups: tuple[str, ...] = a_list(
        "a list of groups", "Groups whose members can only look."
    )
    admin_users: tuple[str, ...] = a_list(
        "a list of user names", "People who are admins, whatever their groups."
    )
    default_role: str = setting(
        one_of(NOBODY, *(role.value for role in Role)),
        f"{NOBODY}, view-only, researcher, operator or admin",
        "Role of a person who is in none of these groups.",
        default=Role.VIEW_ONLY.value,
    )
    project_prefix: str = a_word(
        "text",
        "Groups with this prefix are projects, named by the rest; empty: every group is a project "
        "of the same name.",
    )
    session_ms: int = setting(
        duration(MINUTE_MS, 30 * DAY_MS),
        "a duration from 1m to 30d, such as 12h",
        "Maximum length of a session.",
        default=12 * HOUR_MS,
        shown_as="12h",
    )
    idle_ms: int = setting(
        duration(MINUTE_MS, 30 * DAY_MS),
        "a duration from 1m to 30d, such as 2h",
        "A session ends after this long without use.",
        default=2 * HOUR_MS,
        shown_as="2h",
    )
    token_life_ms: int = setting(
        duration(HOUR_MS, 3650 * DAY_MS),
        "a duration from 1h to 3650d, such as 365d",
        "Longest validity of an API token.",
        default=365 * DAY_MS,
        shown_as="365d",
    )


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """With mode proxy: which proxy signs people in, and how it names them."""

    peers: tuple[str, ...] = setting(
        NETWORKS,
        "a list of addresses or networks",
        "Where the proxy connects from; the same headers from anyone else are ignored.",
        default=(),
        shown_as="[]",
    )
    user_header: str = setting(
        TEXT, "a header's name", "Header with the user's name.", default="X-Remote-User"
    )
    groups_header: str = setting(
        TEXT,
        "a header's name",
        "Header with the groups, separated by commas.",
        default="X-Remote-Groups",
    )
    logout_url: str = a_url("URL where the proxy signs people out.")


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """With mode oidc: the OpenID provider that signs people in."""

    issuer: str = a_url("The provider's issuer URL, as in its tokens.")
    client_id: str = a_word("text", "The client that Marey is registered as.")
    client_secret_env: str = a_word(
        "the name of an environment variable",
        "Variable with the client's secret; empty for a public client (PKCE is always used).",
    )
    client_secret_file: str = a_path("File with that secret, instead of `client_secret_env`.")
    scope: str = setting(
        TEXT,
        "scopes separated by spaces",
        "Scopes to request from the provider.",
        default="openid profile",
    )
    user_claim: str = setting(
        TEXT, "a claim", "Claim with the user's name.", default="preferred_username"
    )
    groups_claim: str = setting(TEXT, "a claim", "Claim with the list of groups.", default="groups")
    label: str = setting(
        TEXT, "text", "What the sign-in button calls the provider.", default="single sign-on"
    )
    timeout_ms: int = a_timeout(10, "How long one request to the provider may take.")
