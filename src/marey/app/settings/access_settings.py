"""Who may use the server: how people sign in, and which role each group has."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal

from msgspec import Meta

from marey.model.settings.setting_types import (
    OptionalText,
    SettingsTable,
    Text,
    Texts,
    Url,
    describe,
    describe_path,
    describe_url,
    describe_variable,
    limit_duration,
    limit_timeout,
    parse_with,
)
from marey.model.times import DAY_MS, HOUR_MS, SECOND_MS

NOBODY = "refused"


def _write_network(text: str) -> str:
    return str(ipaddress.ip_network(text, strict=False))


# What an address is beyond its characters, a pattern cannot say.
_Network = Annotated[str, Meta(pattern=r"^[0-9A-Fa-f:.]*[:.][0-9A-Fa-f:.]*(/[0-9]{1,3})?$")]
Peers = Annotated[tuple[_Network, ...], parse_with(_write_network)]


class AccessSettings(SettingsTable, frozen=True):
    """How people sign in, which role each group has, and what people see of each other."""

    mode: Annotated[
        Literal["auto", "none", "token", "proxy", "oidc"],
        describe(
            "How people sign in (see access.md); auto: `token` where `server.token_env`"
            " or `server.token_file` is set, else `none`.",
            "auto, none, token, proxy or oidc",
        ),
    ] = "auto"
    privacy: Annotated[
        Literal["open", "pseudonymous", "project", "own"],
        describe(
            "Whose names and work people who are not operators can see.",
            "open, pseudonymous, project or own",
        ),
    ] = "open"
    public_url: Annotated[
        Url,
        describe_url(
            "The address that browsers use for Marey. With oidc the redirect URI "
            "registered at the provider is this with /api/v1/sign-in/callback; with "
            "https cookies are Secure."
        ),
    ] = ""
    admin_groups: Annotated[
        Texts, describe("Groups whose members are admins.", "a list of groups")
    ] = ()
    operator_groups: Annotated[
        Texts, describe("Groups whose members are operators.", "a list of groups")
    ] = ()
    researcher_groups: Annotated[
        Texts, describe("Groups whose members are researchers.", "a list of groups")
    ] = ()
    view_only_groups: Annotated[
        Texts, describe("Groups whose members can only look.", "a list of groups")
    ] = ()
    admin_users: Annotated[
        Texts, describe("People who are admins, whatever their groups.", "a list of user names")
    ] = ()
    default_role: Annotated[
        Literal["refused", "view-only", "researcher", "operator", "admin"],
        describe(
            "Role of a person who is in none of these groups.",
            "refused, view-only, researcher, operator or admin",
        ),
    ] = "view-only"
    project_prefix: Annotated[
        OptionalText,
        describe(
            "Groups with this prefix are projects, named by the rest; empty: every "
            "group is a project of the same name.",
            "text",
        ),
    ] = ""
    session_ms: Annotated[
        int, limit_duration("1m", "30d", "Maximum length of a session.", example="12h")
    ] = 12 * HOUR_MS
    idle_ms: Annotated[
        int,
        limit_duration("1m", "30d", "A session ends after this long without use.", example="2h"),
    ] = 2 * HOUR_MS
    token_life_ms: Annotated[
        int, limit_duration("1h", "3650d", "Longest validity of an API token.", example="365d")
    ] = 365 * DAY_MS


class ProxySettings(SettingsTable, frozen=True):
    """With mode proxy: which proxy signs people in, and how it names them."""

    peers: Annotated[
        Peers,
        describe(
            "Where the proxy connects from; the same headers from anyone else are ignored.",
            "a list of addresses or networks",
        ),
    ] = ()
    user_header: Annotated[Text, describe("Header with the user's name.", "a header's name")] = (
        "X-Remote-User"
    )
    groups_header: Annotated[
        Text, describe("Header with the groups, separated by commas.", "a header's name")
    ] = "X-Remote-Groups"
    logout_url: Annotated[Url, describe_url("URL where the proxy signs people out.")] = ""


class OidcSettings(SettingsTable, frozen=True):
    """With mode oidc: the OpenID provider that signs people in."""

    issuer: Annotated[Url, describe_url("The provider's issuer URL, as in its tokens.")] = ""
    client_id: Annotated[
        OptionalText, describe("The client that Marey is registered as.", "text")
    ] = ""
    client_secret_env: Annotated[
        OptionalText,
        describe_variable(
            "Variable with the client's secret; empty for a public client (PKCE is always used)."
        ),
    ] = ""
    client_secret_file: Annotated[
        OptionalText, describe_path("File with that secret, instead of `client_secret_env`.")
    ] = ""
    scope: Annotated[
        Text, describe("Scopes to request from the provider.", "scopes separated by spaces")
    ] = "openid profile"
    user_claim: Annotated[Text, describe("Claim with the user's name.", "a claim")] = (
        "preferred_username"
    )
    groups_claim: Annotated[Text, describe("Claim with the list of groups.", "a claim")] = "groups"
    label: Annotated[Text, describe("What the sign-in button calls the provider.", "text")] = (
        "single sign-on"
    )
    timeout_ms: Annotated[int, limit_timeout("How long one request to the provider may take.")] = (
        10 * SECOND_MS
    )
