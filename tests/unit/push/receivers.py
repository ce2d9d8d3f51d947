"""Starts receivers of deliveries on this machine, honest and hostile, with their certificates."""

import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SECONDS = 60.0
"""Longer than anything here takes on a machine that is ten times slower."""


class Request(NamedTuple):
    line: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    """Answers connections to a port of its own. ``answer`` gets each of them after its request was read; where
    ``early``, before. It writes ``requests`` down."""

    def __init__(self, *, early: bool, context: ssl.SSLContext | None, host: str, port: int) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self.over = threading.Event()
        self._early = early
        self._context = context
        self._listener = socket.create_server((host, port), backlog=128)
        self.port = int(self._listener.getsockname()[1])
        self.answer: Callable[[socket.socket], object] = lambda sock: sock.sendall(reply())
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        self.over.set()
        # Only a connection wakes the thread that waits in accept.
        with suppress(OSError), socket.create_connection(self._listener.getsockname()):
            pass
        for thread in self._threads:
            thread.join(SECONDS)
        self._listener.close()

    def drip(self, sock: socket.socket, piece: bytes) -> None:
        """Sends the bytes repeatedly, with short pauses, until the connection ends or the time is up."""
        deadline = monotonic() + SECONDS
        with suppress(OSError):
            while not self.over.wait(0.02) and monotonic() < deadline:
                sock.sendall(piece)

    def pour(self, sock: socket.socket, piece: bytes) -> None:
        """Sends bytes without pauses."""
        deadline = monotonic() + SECONDS
        with suppress(OSError):
            while not self.over.is_set() and monotonic() < deadline:
                sock.sendall(piece)

    def stay_silent(self, sock: socket.socket) -> None:
        """Waits until the other side closes."""
        sock.settimeout(SECONDS)
        with suppress(OSError):
            while sock.recv(65_536):
                pass

    def _accept(self) -> None:
        while True:
            sock, _ = self._listener.accept()
            if self.over.is_set():
                sock.close()
                return
            self.connections += 1
            self._threads.append(threading.Thread(target=self._serve, args=(sock,)))
            self._threads[-1].start()

    def _serve(self, sock: socket.socket) -> None:
        with suppress(OSError), sock:
            sock.settimeout(SECONDS)
            if self._context is None:
                self._exchange(sock)
            else:
                with self._context.wrap_socket(sock, server_side=True) as secured:
                    self._exchange(secured)

    def _exchange(self, sock: socket.socket) -> None:
        if not self._early:
            self.requests.append(read_request(sock))
        self.answer(sock)


def read_request(sock: socket.socket) -> Request:
    with sock.makefile("rb") as file:
        line = file.readline().decode().strip()
        headers = {}
        while text := file.readline().decode().strip():
            name, _, value = text.partition(": ")
            headers[name.lower()] = value
        size = int(headers.get("content-length", 0))
        body = file.read(size)
        if not line or len(body) < size:
            raise ConnectionError("whoever sent it is gone")
        return Request(line, headers, body)


def reply(status: str = "200 OK", body: bytes = b"", **headers: str) -> bytes:
    fields = {"content_length": str(len(body)), **headers}
    lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {text}" for name, text in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


@contextmanager
def receiving(
    *, early: bool = False, context: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
) -> Iterator[Receiver]:
    receiver = Receiver(early=early, context=context, host=host, port=port)
    try:
        yield receiver
    finally:
        receiver.close()


class Authority:
    """Issues certificates; ``path`` is the file with its own."""

    def __init__(self, folder: Path, name: str = "tests") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.path = folder / f"{name}.pem"
        certificate = (
            self._builder(self._name, self._key, days=30)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def context(self, *hosts: str, days: int = 30) -> ssl.SSLContext:
        """Returns the settings of a server with these names, some of them addresses; its certificate ends in this many
        days."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "server")])
        certificate = (
            self._builder(subject, key, days=days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        path = self._folder / f"{'-'.join(hosts)}{days}.pem"
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: int) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=60))
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
