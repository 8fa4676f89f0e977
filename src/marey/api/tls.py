"""TLS from a certificate and a key file, which may be replaced while the server runs."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from marey.model.errors import InvalidInput, MareyError, shown

log = logging.getLogger(__name__)
WATCH_SECONDS = 30.0
_FIRST = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """Where the certificate chain and its private key are, both PEM."""

    certificate: Path
    key: Path

    def load_into(self, context: ssl.SSLContext) -> None:
        """Give a context the certificate; files that do not fit are refused and named."""
        try:
            context.load_cert_chain(self.certificate, self.key, password=_refuse_password)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, FileNotFoundError) else str(error)
            raise InvalidInput(
                f"Certificate '{shown(str(self.certificate))}' and key '{shown(str(self.key))}' "
                f"cannot be used: {reason}. Both must be PEM, the key without a password."
            ) from None

    def read_state(self) -> tuple[tuple[int, int, int], ...]:
        """Return time, size and number of each file; one that is replaced changes them."""
        states = [path.stat() for path in (self.certificate, self.key)]
        return tuple((s.st_mtime_ns, s.st_size, s.st_ino) for s in states)


def _refuse_password() -> str:
    """Raise instead of asking on the terminal for a password that nobody will type."""
    raise ValueError("the key is encrypted")


class ServerCertificate:
    """The certificate that new connections are shown; the old one goes on until a new one fits."""

    def __init__(self, files: CertificateFiles) -> None:
        self.files = files
        self.context = _make_context()
        files.load_into(self.context)
        self._state = files.read_state()
        # Told the fingerprint of every new certificate.
        self.tell: Callable[[str], None] = lambda fingerprint: None

    @property
    def fingerprint(self) -> str:
        """Return the SHA-256 of the certificate that is shown."""
        first = _FIRST.search(self.files.certificate.read_text("ascii", "replace"))
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(first[0] if first else "")).hexdigest()

    def reload(self) -> bool:
        """Read the files again if they changed; wrong ones are refused and change nothing."""
        state = self.files.read_state()
        if state == self._state:
            return False
        self.files.load_into(_make_context())
        self.files.load_into(self.context)
        self._state = state
        self.tell(self.fingerprint)
        return True

    async def watch(self) -> None:
        """Look at the files every half minute; a pair that does not fit is logged."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                if await asyncio.to_thread(self.reload):
                    log.warning("the certificate was read again")
            except (MareyError, OSError) as error:
                log.warning("the certificate was not read again, the old one goes on: %s", error)


def _make_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
