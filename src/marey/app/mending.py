"""From the reason why a source fails to what a person can do about it."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ANY = ""
_REFUSED = r"status 401|[Uu]nauthorized|[Ee]xpired"
_FORBIDDEN = r"status 403|[Ff]orbidden|[Aa]ccess.*denied"


@dataclass(frozen=True, slots=True)
class Advice:
    """Words of a reason, the kind of source they belong to, and what to do."""

    words: str
    mend: str
    kind: str = _ANY


# The first that fits counts: special ones before general ones.
ADVICE = (
    Advice(
        r"None of \d+ exporters answers",
        "Is dcgm-exporter running on the nodes, and is its port (9400) open to this machine? "
        "Try: curl http://NODE:9400/metrics",
        "dcgm",
    ),
    Advice(
        r"no metric of the catalogue",
        "The exporter or server answers but has no GPU metric that Marey knows. Does Prometheus "
        "scrape dcgm-exporter (up{job=…}), and does `selector` leave something over?",
    ),
    Advice(
        r"There is no program",
        "Install Slurm's client commands here (Debian: slurm-client), or name their folder in "
        "`programs`, or use slurmrestd with `rest_url`.",
        "slurm",
    ),
    Advice(
        r"fetch_config|resolve_ctls|slurm\.conf",
        "Slurm's commands find no slurm.conf here: set SLURM_CONF for the user that runs Marey "
        "(systemd: Environment=SLURM_CONF=…), or put it into /etc/slurm.",
        "slurm",
    ),
    Advice(
        r"[Uu]nable to contact slurm controller|slurm_load",
        "The controller does not answer. Try `scontrol ping`; is SLURM_CONF set for the user that "
        "runs Marey, and is munge running?",
        "slurm",
    ),
    Advice(
        r"[Aa]uthentication|munge",
        "Slurm refuses this user: is munged running with the cluster's key, do the clocks agree?",
        "slurm",
    ),
    Advice(
        _REFUSED,
        "The token is missing, wrong or expired. Make a new one (scontrol token username=USER "
        "lifespan=SECONDS), put it where token_env or token_file says, and reload the sources.",
        "slurm",
    ),
    Advice(
        _REFUSED,
        "The service account's token is missing, wrong or expired. Make a new one (kubectl create "
        "token NAME), put it where token_env or token_file says, and reload the sources.",
        "kubernetes",
    ),
    Advice(
        _REFUSED,
        "It wants a token, or another one than this: put a valid one where token_env or "
        "token_file says, and reload the sources.",
    ),
    Advice(
        _FORBIDDEN,
        "The token is known but may not read this: apply the ClusterRole of deploy/kubernetes and "
        "bind it to the service account.",
        "kubernetes",
    ),
    Advice(
        _FORBIDDEN,
        "The user is known but may not read this: make it a Slurm operator (sacctmgr modify user "
        "NAME set adminlevel=operator), or leave jobs and nodes out of PrivateData.",
        "slurm",
    ),
    Advice(_FORBIDDEN, "The token is known but may not read this: give its user the right."),
    Advice(
        r"status 404",
        "There is something at this address, but not this interface: check host, port and path "
        "of the URL.",
    ),
    Advice(
        r"status 5\d\d",
        "The other side fails by itself: its own log says why. Marey asks again.",
    ),
    Advice(
        r"[Nn]ame or service not known|nodename nor servname|[Tt]emporary failure in name",
        "The host's name cannot be resolved here: check the spelling, or give an IP address.",
    ),
    Advice(
        r"[Cc]onnect(?:ion)? (?:call failed|refused)|refused",
        "Nothing listens at this address: is the program running, on this port, and not only on "
        "its own loopback?",
    ),
    Advice(
        r"no answer within|timed out",
        "It takes too long: is it overloaded, or does a firewall drop the packets? `timeout` and "
        "`collect.patience` say how long it may take.",
    ),
    Advice(
        r"certificate|SSL|TLS",
        "Its certificate is not trusted here: install the site's authority on this machine, or "
        "use the name that the certificate is for.",
    ),
    Advice(
        r"too old \(",
        "The exporter repeats old values: it has lost the GPU driver or DCGM; restart it.",
    ),
    Advice(
        r"environment variable|token_file|secret",
        "The secret is not where the configuration says: set the variable for the service "
        "(systemd: EnvironmentFile=), or make the file readable for its user.",
    ),
)
GENERAL = "Run `marey doctor --config FILE` on the server: it tests this source step by step."


def how_to_mend(kind: str, reason: str) -> str:
    """What to do about a source that fails for this reason; empty where nothing is wrong."""
    if not reason:
        return ""
    for advice in ADVICE:
        if advice.kind in (_ANY, kind) and re.search(advice.words, reason):
            return advice.mend
    return GENERAL
