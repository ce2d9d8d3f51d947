"""Creates the TLS context of the server."""

import ssl
from pathlib import Path

from hourwheel.embedded.credentials.private import read_private


class _Encrypted(Exception):
    """Says that the key needs a password."""


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Returns a context for TLS 1.2 or newer, with a chain of certificates and its key.

    Raises ``ValueError`` with one sentence if the files cannot be used.
    """
    read_private(key)
    if certificate.resolve().is_fifo():
        raise ValueError(f"{certificate} is a named pipe, which might never be written: give a file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # each renegotiation costs the server far more than the client
    try:
        context.load_cert_chain(certificate, key, password=_refuse_password)
    except _Encrypted:
        raise ValueError(
            f"the key in {key} is encrypted, and the server does not ask for a password: decrypt it"
        ) from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ValueError(f"the key in {key} is not that of the certificate in {certificate}") from error
        raise ValueError(f"{certificate} and {key} are not a certificate and its key in PEM") from error
    except OSError as error:
        raise ValueError(f"cannot read {certificate}: {error.strerror}") from error
    return context


def _refuse_password() -> str:
    raise _Encrypted
