from __future__ import annotations

import itertools

from marey.model.access.identity import ROLE_PERMISSIONS, Identity, Permission, Role


def test_each_role_permits_all_that_the_one_before_does() -> None:
    roles = list(Role)
    for lower, higher in itertools.pairwise(roles):
        assert ROLE_PERMISSIONS[lower] < ROLE_PERMISSIONS[higher]


def test_a_token_never_permits_more_than_its_owner() -> None:
    scopes = frozenset({Permission.READ, Permission.ADMINISTER})
    assert Identity("ada", Role.RESEARCHER, scopes=scopes).permissions == {Permission.READ}
    assert Identity("ada", Role.OPERATOR).may(Permission.OPERATE)
