"""The machine's clock and randomness. The only module that may touch them."""

import os
import secrets
import time

_JITTER_BITS = 53  # what a float holds exactly


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class SystemIds:
    def token(self) -> bytes:
        return os.urandom(16)

    def unique(self, now_ms: int) -> str:
        return f"{now_ms:012x}{secrets.token_hex(8)}"

    def jitter(self) -> float:
        return secrets.randbits(_JITTER_BITS) / (1 << _JITTER_BITS)
