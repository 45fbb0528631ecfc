"""An authority of a test's own, and the certificates that it signs."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)


def named(name: str) -> x509.Name:
    """A subject or issuer."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def write(path: Path, content: bytes) -> Path:
    """A file for its owner's eyes."""
    path.write_bytes(content)
    path.chmod(0o600)
    return path


@dataclass(frozen=True)
class Pair:
    """The files of a certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates; its own is in `path`."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.key = ec.generate_private_key(ec.SECP256R1())
        made = self.begun(named(name), self.key.public_key())
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
        signed = made.sign(self.key, hashes.SHA256())
        self.path = write(folder / f"{name}.pem", signed.public_bytes(serialization.Encoding.PEM))

    def begun(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, age: datetime.timedelta = DAY
    ) -> x509.CertificateBuilder:
        """A certificate of this authority that began `age` ago and is good for two days."""
        began = datetime.datetime.now(datetime.UTC) - age
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(named(self.name))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(began)
            .not_valid_after(began + 2 * DAY)
        )

    def revoke(self, path: Path, *revoked: Pair, age: datetime.timedelta = DAY) -> Path:
        """Writes a list of revoked certificates that began `age` ago and has an update after two days."""
        began = datetime.datetime.now(datetime.UTC) - age
        made = x509.CertificateRevocationListBuilder().issuer_name(named(self.name))
        made = made.last_update(began).next_update(began + 2 * DAY).add_extension(x509.CRLNumber(1), False)
        for pair in revoked:
            number = x509.load_pem_x509_certificate(pair.cert.read_bytes()).serial_number
            entry = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(began)
            made = made.add_revoked_certificate(entry.build())
        signed = made.sign(self.key, hashes.SHA256())
        return write(path, signed.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *, server: bool = False, age: datetime.timedelta = DAY) -> Pair:
        """A certificate for a server on 127.0.0.1 or for a client, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        made = (
            self.begun(named(name), key.public_key(), age)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
            .add_extension(x509.ExtendedKeyUsage([usage]), False)
            .sign(self.key, hashes.SHA256())
        )
        form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return Pair(
            write(self.folder / f"{name}.pem", made.public_bytes(serialization.Encoding.PEM)),
            write(self.folder / f"{name}.key", key.private_bytes(serialization.Encoding.PEM, form, plain)),
        )
