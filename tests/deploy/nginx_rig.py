"""A real nginx on loopback with the recipe of deploy/, and certificates to show."""

from __future__ import annotations

import datetime
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.waiting import free_port, until

RECIPE = Path(__file__).resolve().parents[2] / "deploy" / "nginx" / "marey.conf"
# The recipe listens where only root may, and shows a certificate that is not here.
AROUND = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/marey.conf;
}}
"""


def make_certificate(folder: Path, name: str = "gpu.example.org") -> tuple[Path, Path]:
    """A certificate of its own for this name and loopback, and its key, as PEM files."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName(name), x509.IPAddress(ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / f"{name}.pem", folder / f"{name}.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate, private


@contextmanager
def nginx_in_front(program: str, folder: Path, port_behind: int) -> Iterator[tuple[str, Path]]:
    """The URL of an nginx that shows a Marey below /marey, and the certificate it has."""
    certificate, key = make_certificate(folder)
    port = free_port()
    recipe = RECIPE.read_text()
    for given, here in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/nginx/tls/gpu.example.org.pem", str(certificate)),
        ("/etc/nginx/tls/gpu.example.org.key", str(key)),
        ("http://127.0.0.1:8600", f"http://127.0.0.1:{port_behind}"),
    ):
        assert given in recipe
        recipe = recipe.replace(given, here)
    (folder / "marey.conf").write_text(recipe)
    (folder / "nginx.conf").write_text(AROUND.format(folder=folder))
    process = subprocess.Popen(
        [program, "-p", str(folder), "-c", str(folder / "nginx.conf")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        until(lambda: process.poll() is not None or (folder / "nginx.pid").exists(), "nginx")
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        yield f"https://127.0.0.1:{port}", certificate
    finally:
        process.terminate()
        process.communicate()
