"""What the API says of people, sessions and tokens."""

from __future__ import annotations

from marey.model.documents import Document


class SignInWays(Document):
    """How one signs in here."""

    # none, token, proxy or oidc.
    mode: str
    # Where a browser goes to sign in at the provider; empty where there is none.
    provider: str
    label: str
    # Whether a token, or the key of a local server's owner, is taken.
    takes_token: bool
    # Whether there is something to sign out of: a proxy may have no such place.
    signs_out: bool


class CurrentUser(Document):
    """Who is asking, and what they may do."""

    # Empty for somebody who is not signed in.
    user: str
    role: str
    permissions: list[str]
    groups: list[str]
    projects: list[str]
    # session, token, proxy, or empty.
    by: str
    privacy: str
    # When the session or token ends.
    ends_ms: int | None
    sign_in: SignInWays


class SignedInSession(Document):
    """A new session: the key is sent with every change (X-Marey-Key), and shown this once."""

    session_key: str
    me: CurrentUser


class SessionKey(Document):
    """A new key of the session; the one before is worthless."""

    session_key: str


class SignedOut(Document):
    """Where to go to sign out elsewhere too; empty for nowhere."""

    next: str


class TokenRow(Document):
    """A token, without its secret."""

    id: str
    name: str
    user: str
    role: str
    scopes: list[str]
    workload: str
    created_ms: int
    expires_ms: int
    used_ms: int | None


class NewToken(Document):
    """A new token; its text is shown this once."""

    token: str
    row: TokenRow


class CommandWaiting(Document):
    """A command that signs in: its code for the person, its secret for itself."""

    code: str
    command_secret: str
    # Page on which the person confirms the code.
    page: str
    ends_ms: int


class CommandAsking(Document):
    """What a person is asked to confirm."""

    code: str
    place: str
    peer: str
    begun_ms: int


class CommandToken(Document):
    """The token of a command; empty while its user has not confirmed."""

    token: str


class PersonRow(Document):
    """Somebody who used the server since it started, or has a token."""

    user: str
    role: str
    groups: list[str]
    seen_ms: int | None
    sessions: int
    tokens: int


class SessionRow(Document):
    """One browser that is signed in."""

    id: str
    user: str
    role: str
    peer: str
    since_ms: int
    seen_ms: int
    ends_ms: int
    # Whether it is the one that asks.
    is_own: bool


class People(Document):
    """Users, their roles, sessions and tokens."""

    mode: str
    privacy: str
    people: list[PersonRow]
    sessions: list[SessionRow]
    tokens: list[TokenRow]
