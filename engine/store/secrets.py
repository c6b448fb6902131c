"""Keys that stay beside the database, never in it: passwords are encrypted, page tokens are signed.

The key file is made at the first start, readable by its owner alone. Without it a copy of the database holds no
password; a lost key file means that passwords must be given again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken

from framepool.engine.store.errors import StoreError

KEY_FILE = "secrets.key"


class Secrets:
    """Encrypts and signs with the key of one state directory."""

    def __init__(self, key: bytes) -> None:
        self._fernet = Fernet(key)
        self._signing_key = hashlib.sha256(b"framepool page tokens" + key).digest()

    @classmethod
    def load(cls, state_dir: Path) -> Secrets:
        """Reads the key file, or makes it. Raises StoreError where it can't be read or is damaged."""
        path = state_dir / KEY_FILE
        try:
            if not path.exists():
                partial = path.with_suffix(".tmp")
                partial.unlink(missing_ok=True)
                fd = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
                with os.fdopen(fd, "wb") as file:
                    file.write(Fernet.generate_key())
                partial.replace(path)
            return cls(path.read_bytes().strip())
        except (OSError, ValueError) as exc:
            raise StoreError(f"key file {path} can't be used: {exc}", field="engine.state_dir") from exc

    def encrypt(self, text: str) -> bytes:
        return self._fernet.encrypt(text.encode())

    def decrypt(self, token: bytes) -> str | None:
        """The text, None where the key is another one."""
        try:
            return self._fernet.decrypt(token).decode()
        except InvalidToken:
            return None

    def sign(self, message: bytes) -> str:
        """The message with its signature, safe in a URL."""
        mac = hmac.new(self._signing_key, message, hashlib.sha256).digest()[:16]
        return base64.urlsafe_b64encode(mac + message).decode().rstrip("=")

    def verify(self, token: str) -> bytes | None:
        """The message that was signed, None for anything else."""
        try:
            data = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        except ValueError:
            return None
        mac, message = data[:16], data[16:]
        expected = hmac.new(self._signing_key, message, hashlib.sha256).digest()[:16]
        return message if hmac.compare_digest(mac, expected) else None
