"""Drawing code and data that stand inside a page of one file."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from typing import Any


@dataclass(frozen=True, slots=True)
class Drawing:
    """The web app's drawing code: one script and one style sheet."""

    script: str
    style: str

    @property
    def inline_script(self) -> str:
        """The script as it can stand inside a page."""
        return self.script.replace("</script", "<\\/script").replace("<!--", "<\\!--")

    @property
    def allowed(self) -> str:
        """The policy that lets this script run and no other."""
        digest = b64encode(sha256(self.inline_script.encode()).digest()).decode()
        return f"script-src 'sha256-{digest}'"


def write_page_data(data: Any) -> str:
    """Return data as JSON that no name can break out of."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
