"""Where the API server is and how to be let in: inside the cluster, by address, or kubeconfig."""

from __future__ import annotations

import base64
import binascii
import json
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from marey.model.errors import InvalidInput, Unavailable, shown
from marey.model.system.secrets import Secret
from marey.sources.kubernetes.exec_credentials import ExecCredentials, read_exec_credentials

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
KUBECONFIG_LIMIT = 1 << 20
NOT_SUPPORTED = ("auth-provider", "username", "password", "impersonate", "as")


@dataclass(frozen=True, slots=True)
class Access:
    """An API server and what opens it; the token's file is read again for every request."""

    server: str
    token: str = ""
    token_file: str = ""
    program: ExecCredentials | None = None
    ca_file: str = ""
    ca_data: str = ""
    certificate: bytes = b""
    key: bytes = b""
    verify: bool = True

    def __post_init__(self) -> None:
        parts = urlsplit(self.server)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInput(
                f"'{shown(self.server)}' is not an API server; allowed: an http(s) URL."
            )

    def headers(self) -> dict[str, str]:
        """Return the headers of every request.

        Service account tokens are renewed in their file.
        """
        token = self.token
        if self.token_file:
            token = Secret(file=self.token_file, file_key="The token file").read(Unavailable)
        elif self.program is not None:
            token = self.program.read_token()
        if not all(33 <= ord(c) < 127 for c in token):
            raise Unavailable("The Kubernetes token holds what a header may not.")
        return {"Authorization": f"Bearer {token}"} if token else {}

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context that checks the server's certificate; None for plain http."""
        if not self.server.startswith("https://"):
            return None
        try:
            context = ssl.create_default_context(
                cafile=self.ca_file or None, cadata=self.ca_data or None
            )
        except (OSError, ssl.SSLError, ValueError) as error:
            raise InvalidInput(f"The API server's CA cannot be used: {error}.") from None
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate:
            _load_certificate(context, self.certificate, self.key)
        return context


def _load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a client certificate from files that live as long as this call.

    Python takes no others.
    """
    handle, path = tempfile.mkstemp(prefix="marey-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(certificate + b"\n" + key)
        context.load_cert_chain(path)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(f"The client certificate cannot be used: {error}.") from None
    finally:
        os.unlink(path)


def find_cluster_access(
    environment: Mapping[str, str] | None = None, folder: Path = SERVICE_ACCOUNT
) -> Access:
    """Return the API server of the cluster that this process runs in, as its service account."""
    given = os.environ if environment is None else environment
    host, port = (
        given.get("KUBERNETES_SERVICE_HOST", ""),
        given.get("KUBERNETES_SERVICE_PORT", "443"),
    )
    if not host or not (folder / "token").exists():
        raise InvalidInput(
            "Not inside a Kubernetes cluster (no service account is mounted); set url and "
            "token_file, or kubeconfig."
        )
    name = f"[{host}]" if ":" in host else host
    return Access(
        f"https://{name}:{port}",
        token_file=str(folder / "token"),
        ca_file=str(folder / "ca.crt"),
    )


def read_kubeconfig(path: Path, context: str = "") -> Access:
    """Return the server and user of a kubeconfig's context (the current one by default).

    Understood: server, CA, token, token file, client certificate, and programs that make tokens
    (``exec``). Auth providers, passwords and impersonation are not: use a token file.
    """
    document = _read_kubeconfig(path)
    wanted = context or str(document.get("current-context") or "")
    chosen = _find_entry(document, "contexts", wanted).get("context") or {}
    cluster = _find_entry(document, "clusters", str(chosen.get("cluster"))).get("cluster") or {}
    user = _find_entry(document, "users", str(chosen.get("user"))).get("user") or {}
    refused = [key for key in NOT_SUPPORTED if user.get(key)]
    if refused and not user.get("token") and not user.get("tokenFile"):
        raise InvalidInput(
            f"kubeconfig '{shown(str(path))}': the user of context '{shown(wanted)}' is let in by "
            f"{refused[0]}, which is not supported; allowed: token, tokenFile, exec, client "
            "certificate. Set url and token_file instead."
        )
    folder = path.parent
    made = bool(user.get("exec")) and not user.get("token") and not user.get("tokenFile")
    ca_file = str(cluster.get("certificate-authority") or "")
    token_file = str(user.get("tokenFile") or "")
    return Access(
        str(cluster.get("server") or "").rstrip("/"),
        token="" if token_file else str(user.get("token") or ""),
        token_file=str(folder / token_file) if token_file else "",
        program=read_exec_credentials(user["exec"], folder) if made else None,
        ca_file=str(folder / ca_file) if ca_file else "",
        ca_data=_decode_entry(cluster, "certificate-authority-data").decode("ascii", "replace"),
        certificate=_read_file_or_data(folder, user, "client-certificate"),
        key=_read_file_or_data(folder, user, "client-key"),
        verify=not cluster.get("insecure-skip-tls-verify", False),
    )


def _read_kubeconfig(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes()[:KUBECONFIG_LIMIT].decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"kubeconfig '{shown(str(path))}' cannot be read: {error}.") from None
    try:
        document = json.loads(text) if text.lstrip().startswith("{") else _parse_yaml(text)
    except ValueError as error:
        raise InvalidInput(
            f"kubeconfig '{shown(str(path))}' cannot be read: {shown(str(error))}"
        ) from None
    if not isinstance(document, dict):
        raise InvalidInput(f"kubeconfig '{shown(str(path))}' holds no settings.")
    return document


def _parse_yaml(text: str) -> Any:
    """Return the plain values of a YAML text."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _find_entry(document: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    entries = document.get(kind)
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and entry.get("name") == name:
            return entry
    raise InvalidInput(f"The kubeconfig has no '{shown(name)}' among its {kind}.")


def _decode_entry(entry: dict[str, Any], key: str) -> bytes:
    try:
        return base64.b64decode(str(entry.get(key) or ""), validate=True)
    except binascii.Error:
        raise InvalidInput(f"The kubeconfig's {key} is not base64.") from None


def _read_file_or_data(folder: Path, entry: dict[str, Any], key: str) -> bytes:
    if not entry.get(key):
        return _decode_entry(entry, f"{key}-data")
    try:
        return (folder / str(entry[key])).read_bytes()
    except OSError as error:
        raise InvalidInput(f"The kubeconfig's {key}: {error}.") from None
