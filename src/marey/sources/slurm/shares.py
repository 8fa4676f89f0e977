"""What each account is meant to have of the cluster: ``sshare``, or slurmrestd's shares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from marey.model.errors import Unavailable
from marey.model.names import bounded

FORMAT = "Account,User,RawShares"
# Slurm's number for "as its parent" (SLURMDB_FS_USE_PARENT).
_AS_PARENT = 0x7FFFFFFF
_ROOT = "root"


@dataclass(frozen=True, slots=True)
class Association:
    """An account or one of its users, below an account; no shares: it stands as its parent."""

    name: str
    parent: str
    is_user: bool
    shares: int | None


def parse_shares(listed: str) -> dict[str, float]:
    """Return each account's part of the cluster from ``sshare`` of every version: its text tells
    the tree by how far an account is indented.
    """
    found: list[Association] = []
    path: list[str] = []
    for line in listed.splitlines():
        account, _, rest = line.partition("|")
        user, _, shares = rest.partition("|")
        name = account.strip()
        if not name:
            continue
        depth = len(account) - len(account.lstrip(" "))
        number = int(shares) if shares.strip().isdecimal() else None
        if user.strip():
            found.append(Association(user.strip(), name, True, number))
            continue
        path = path[:depth]
        found.append(Association(name, path[-1] if path else "", False, number))
        path.append(name)
    return weigh_accounts(found)


class _Number(msgspec.Struct):
    set: bool = True
    number: int | None = None


class _Share(msgspec.Struct):
    name: str = ""
    parent: str | None = ""
    type: Sequence[str] = ()
    shares: _Number | int | None = None


class _Shares(msgspec.Struct):
    shares: Sequence[_Share] = ()


class _Document(msgspec.Struct):
    shares: _Shares


def parse_shares_document(body: bytes) -> dict[str, float]:
    """Return the same from slurmrestd's ``shares``."""
    try:
        document = msgspec.json.decode(body, type=_Document)
    except msgspec.MsgspecError as error:
        raise Unavailable(f"slurmrestd's shares cannot be read: {error}") from None
    return weigh_accounts(
        [
            Association(one.name, one.parent or "", "USER" in one.type, _read_number(one.shares))
            for one in document.shares.shares
        ]
    )


def _read_number(reported: _Number | int | None) -> int | None:
    number = reported.number if isinstance(reported, _Number) and reported.set else reported
    return number if isinstance(number, int) and number != _AS_PARENT else None


def weigh_accounts(associations: Sequence[Association]) -> dict[str, float]:
    """Return the part of the cluster that each account's own users are meant to have.

    Shares count among siblings, level by level (Slurm's fair tree). An account that stands as its
    parent hands its children on to it. ``root`` is no project.
    """
    accounts: dict[str, list[Association]] = defaultdict(list)
    users: dict[str, list[Association]] = defaultdict(list)
    for one in associations:
        (users if one.is_user else accounts)[one.parent].append(one)
    weights: dict[str, float] = defaultdict(float)
    waiting = [(one.name, 1.0) for one in accounts[""]]
    seen: set[str] = set()
    while waiting:
        name, part = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        below = _list_below(name, accounts, seen)
        own = sum(user.shares or 0 for user in users[name])
        total = own + sum(one.shares or 0 for one in below)
        weights[name] += part * (own / total if total else 1.0)
        waiting += [(one.name, part * (one.shares or 0) / total) for one in below if total]
    return {bounded(name): part for name, part in weights.items() if part > 0 and name != _ROOT}


def _list_below(
    name: str, accounts: Mapping[str, Sequence[Association]], seen: set[str]
) -> list[Association]:
    """Return the accounts that compete below this one, those of accounts as their parent too."""
    found: list[Association] = []
    waiting = list(accounts.get(name, ()))
    while waiting:
        one = waiting.pop(0)
        if one.shares is not None:
            found.append(one)
        elif one.name not in seen:
            seen.add(one.name)
            waiting += accounts.get(one.name, ())
    return found
