"""Being let in: service account, kubeconfig, certificates that are and are not trusted."""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from marey.model.errors import InvalidInput, Unavailable
from marey.sources.kubernetes.access import Access, find_cluster_access, read_kubeconfig
from marey.sources.kubernetes.client import ApiClient


def config(path: Path, user: dict[str, object], cluster: dict[str, object]) -> Path:
    document = {
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(document))
    return path


def test_inside_a_cluster_the_service_account_is_used(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    told = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    access = find_cluster_access(told, tmp_path)
    assert access.server == "https://[fd00::1]:6443"
    assert access.headers() == {"Authorization": "Bearer abc"}
    (tmp_path / "token").write_text("renewed")
    assert access.headers() == {"Authorization": "Bearer renewed"}
    with pytest.raises(InvalidInput, match="Not inside a Kubernetes cluster"):
        find_cluster_access({}, tmp_path)


def test_a_kubeconfig_gives_server_token_and_ca(tmp_path: Path) -> None:
    path = config(tmp_path / "config", {"token": "t1"}, {"server": "http://h:1/"})
    access = read_kubeconfig(path)
    assert (access.server, access.headers()) == ("http://h:1", {"Authorization": "Bearer t1"})
    (tmp_path / "tok").write_text("t2")
    path = config(tmp_path / "config", {"tokenFile": "tok"}, {"server": "http://h:1"})
    assert read_kubeconfig(path).headers() == {"Authorization": "Bearer t2"}


def test_a_kubeconfig_may_be_yaml(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(
        "current-context: one\n"
        "contexts:\n- name: one\n  context: {cluster: c, user: u}\n"
        "clusters:\n- name: c\n  cluster: {server: 'https://h:6443'}\n"
        "users:\n- name: u\n  user: {token: t}\n"
    )
    assert read_kubeconfig(path).server == "https://h:6443"
    path.write_text("a: [")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_kubeconfig(path)


def test_a_program_of_the_kubeconfig_makes_the_token_and_is_asked_again_when_it_is_over(
    tmp_path: Path,
) -> None:
    script = tmp_path / "token.sh"
    script.write_text(
        '#!/bin/sh\necho x >> "$COUNT"\n'
        'echo \'{"kind":"ExecCredential","status":{"token":"t-\'$1-$NAME\'",\'\n'
        "echo '\"expirationTimestamp\":\"'$2'\"}}'\n"
    )
    script.chmod(0o755)
    count = tmp_path / "count"

    def access(until: str) -> Access:
        environment = [{"name": "COUNT", "value": str(count)}, {"name": "NAME", "value": "n"}]
        made = {"command": "./token.sh", "args": ["a", until], "env": environment}
        return read_kubeconfig(config(tmp_path / "config", {"exec": made}, {"server": "http://h"}))

    lasting = access("2199-01-01T00:00:00Z")
    assert [lasting.headers() for _ in range(2)] == [{"Authorization": "Bearer t-a-n"}] * 2
    assert len(count.read_text().split()) == 1
    over = access("2020-01-01T00:00:00Z")
    assert [over.headers() for _ in range(2)] == [{"Authorization": "Bearer t-a-n"}] * 2
    assert len(count.read_text().split()) == 3
    script.write_text("#!/bin/sh\necho no such profile >&2\nexit 1\n")
    with pytest.raises(Unavailable, match="no such profile"):
        over.headers()


@pytest.mark.parametrize(
    ("user", "cluster", "message"),
    [
        ({"auth-provider": {"name": "gcp"}}, {"server": "http://h"}, "let in by auth-provider"),
        ({"exec": {"args": ["x"]}}, {"server": "http://h"}, "names no command"),
        ({"token": "x"}, {"server": "ftp://h"}, "not an API server"),
        ({"client-certificate-data": "%%%"}, {"server": "http://h"}, "not base64"),
        ({"client-certificate": "nowhere"}, {"server": "http://h"}, "client-certificate"),
    ],
)
def test_what_a_kubeconfig_cannot_mean_is_refused(
    tmp_path: Path, user: dict[str, object], cluster: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_kubeconfig(config(tmp_path / "config", user, cluster))
    with pytest.raises(InvalidInput, match="no 'two' among its contexts"):
        read_kubeconfig(config(tmp_path / "config", user, cluster), "two")


class _Says(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")


def test_a_certificate_is_checked_against_the_ca(
    tmp_path: Path, need_program: Callable[..., str]
) -> None:
    openssl = need_program("openssl")
    key, certificate = tmp_path / "k.pem", tmp_path / "c.pem"
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key),
         "-out", str(certificate), "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Says)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    url = f"https://127.0.0.1:{server.server_address[1]}"
    data = base64.b64encode(certificate.read_bytes()).decode()
    secret = base64.b64encode(key.read_bytes()).decode()
    user = {"client-certificate-data": data, "client-key-data": secret}
    cluster = {"server": url, "certificate-authority-data": data}
    try:
        for access in (
            Access(url, ca_file=str(certificate)),
            read_kubeconfig(config(tmp_path / "config", user, cluster)),
            Access(url, verify=False),
        ):
            assert ApiClient(access, 5).get("/x", {}) == b"{}"
        with pytest.raises(Unavailable, match="certificate is not trusted"):
            ApiClient(Access(url), 5).get("/x", {})
    finally:
        server.shutdown()
        server.server_close()
