"""From the reason why a source fails to what a person can do about it."""

from __future__ import annotations

from dataclasses import dataclass

_ANY = ""
_REFUSED = "unauthorized"
_FORBIDDEN = "forbidden"


@dataclass(frozen=True, slots=True)
class Advice:
    """The code of an error, the kind of source it belongs to, and what to do."""

    code: str
    mend: str
    kind: str = _ANY


# The first that fits counts: those of one kind of source before general ones.
ADVICE = (
    Advice(
        "no_exporter_answers",
        "Is dcgm-exporter running on the nodes, and is its port (9400) open to this machine? "
        "Try: curl http://NODE:9400/metrics",
        "dcgm",
    ),
    Advice(
        "no_known_metric",
        "The exporter or server answers but has no GPU metric that Marey knows. Does Prometheus "
        "scrape dcgm-exporter (up{job=…}), and does `selector` leave something over?",
    ),
    Advice(
        "no_program",
        "Install Slurm's client commands here (Debian: slurm-client), or name their folder in "
        "`programs`, or use slurmrestd with `rest_url`.",
        "slurm",
    ),
    Advice(
        "slurm_not_configured",
        "Slurm's commands find no slurm.conf here: set SLURM_CONF for the user that runs Marey "
        "(systemd: Environment=SLURM_CONF=…), or put it into /etc/slurm.",
        "slurm",
    ),
    Advice(
        "controller_silent",
        "The controller does not answer. Try `scontrol ping`; is SLURM_CONF set for the user that "
        "runs Marey, and is munge running?",
        "slurm",
    ),
    Advice(
        "slurm_authentication",
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
        "It needs a valid token: put one where token_env or "
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
        "no_such_path",
        "There is something at this address, but not this interface: check host, port and path "
        "of the URL.",
    ),
    Advice(
        "server_failed",
        "The service itself is failing; see its log. Marey will try again.",
    ),
    Advice(
        "unknown_host",
        "The host's name cannot be resolved here: check the spelling, or give an IP address.",
    ),
    Advice(
        "connection_refused",
        "Nothing listens at this address: is the program running, on this port, and not only on "
        "its own loopback?",
    ),
    Advice(
        "timeout",
        "It takes too long: is it overloaded, or does a firewall drop the packets? `timeout` and "
        "`collect.patience` say how long it may take.",
    ),
    Advice(
        "untrusted_certificate",
        "Its certificate is not trusted here: install the site's authority on this machine, or "
        "use the name that the certificate is for.",
    ),
    Advice(
        "old_values",
        "The exporter repeats old values: it has lost the GPU driver or DCGM; restart it.",
    ),
    Advice(
        "secret_missing",
        "The secret is not where the configuration says: set the variable for the service "
        "(systemd: EnvironmentFile=), or make the file readable for its user.",
    ),
)
GENERAL = "Run `marey doctor --config FILE` on the server: it tests this source step by step."


def find_advice(kind: str, code: str) -> str:
    """Return advice on a source that fails with this code; empty where nothing is wrong."""
    if not code:
        return ""
    for advice in ADVICE:
        if advice.kind in (_ANY, kind) and advice.code == code:
            return advice.mend
    return GENERAL
