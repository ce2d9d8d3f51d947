"""Creates a certificate authority that is valid for an hour, and its certificates."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class Certificate:
    """Writes a self-signed certificate for 127.0.0.1 and its key to two files: ``chain`` and ``key``."""

    def __init__(self, folder: Path, *, password: bytes | None = None) -> None:
        folder.mkdir()
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tests")])
        now = datetime.now(UTC)
        signed = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(_USAGE, critical=True)
            .sign(key, hashes.SHA256())
        )
        self.chain, self.key = folder / "chain.pem", folder / "key.pem"
        self.chain.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        secrecy = serialization.NoEncryption() if password is None else serialization.BestAvailableEncryption(password)
        form = serialization.PrivateFormat.PKCS8
        self.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, secrecy))
        self.key.chmod(0o600)


_USAGE = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)
