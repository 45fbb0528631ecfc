//! TLS of the listeners: TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1 by ALPN, certificates of clients
//! where the configuration asks for them.

use crate::config::{ClientCerts, TlsFiles};
use std::{
    fmt::Display,
    io::{Error, ErrorKind, Result},
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, pem::PemObject},
        server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    },
};

/// What new connections are shown and asked for; those that are open keep what they agreed on.
pub struct Certificate(RwLock<Acceptors>);

/// A listener that speaks TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listener {
    S3,
    Admin,
}

struct Acceptors {
    s3: TlsAcceptor,
    admin: TlsAcceptor,
}

impl Certificate {
    /// Reads certificate chain and key, who signs the certificates of clients, and which of these
    /// are revoked.
    ///
    /// # Errors
    /// A file that cannot be read or is not PEM; a key that does not belong to the certificate.
    pub fn read(files: &TlsFiles) -> Result<Self> {
        Ok(Self(RwLock::new(Acceptors::read(files)?)))
    }

    /// Becomes `fresh`. A session of before cannot be resumed, so whoever comes back shows a
    /// certificate anew.
    pub fn replace(&self, fresh: Self) {
        let fresh = fresh.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = fresh;
    }

    pub(super) fn acceptor(&self, listener: Listener) -> TlsAcceptor {
        let acceptors = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match listener {
            Listener::S3 => acceptors.s3.clone(),
            Listener::Admin => acceptors.admin.clone(),
        }
    }
}

impl Acceptors {
    fn read(files: &TlsFiles) -> Result<Self> {
        let chain = certificates(&files.cert)?;
        let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| invalid(&files.key, &error))?;
        let authorities = files.clients.as_ref().map(|clients| authorities(&clients.ca)).transpose()?;
        let crl = files.clients.as_ref().and_then(|clients| clients.crl.as_deref());
        let revoked = crl.map(revocation_lists).transpose()?;
        let acceptor = |asked: ClientCerts| {
            let builder = match (&files.clients, &authorities) {
                (Some(clients), Some(roots)) if asked != ClientCerts::Off => {
                    let culprit = clients.crl.as_ref().unwrap_or(&clients.ca);
                    let verifier = verifier(roots.clone(), revoked.clone(), asked);
                    let verifier = verifier.map_err(|error| invalid(culprit, &error))?;
                    ServerConfig::builder().with_client_cert_verifier(verifier)
                }
                _ => ServerConfig::builder().with_no_client_auth(),
            };
            let config = builder.with_single_cert(chain.clone(), key.clone_key());
            let mut config = config.map_err(|error| invalid(&files.cert, &error))?;
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
            Ok::<_, Error>(TlsAcceptor::from(Arc::new(config)))
        };
        let asked =
            files.clients.as_ref().map_or((ClientCerts::Off, ClientCerts::Off), |asked| (asked.s3, asked.admin));
        Ok(Self { s3: acceptor(asked.0)?, admin: acceptor(asked.1)? })
    }
}

fn invalid(path: &Path, error: &dyn Display) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("{}: {error}", path.display()))
}

/// All of a kind in a PEM file, which has at least one.
fn all_of<T: PemObject>(kind: &str, path: &Path) -> Result<Vec<T>> {
    let found = T::pem_file_iter(path)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>)
        .map_err(|error| invalid(path, &error))?;
    match found.is_empty() {
        true => Err(invalid(path, &format!("there is no {kind} in it"))),
        false => Ok(found),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    all_of("certificate", path)
}

fn revocation_lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>> {
    all_of("revocation list", path)
}

fn authorities(path: &Path) -> Result<Arc<RootCertStore>> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| invalid(path, &error))?;
    }
    Ok(Arc::new(roots))
}

/// Where revocation lists are kept, a certificate of which none tells is refused, and one whose
/// list is past its next update.
fn verifier(
    roots: Arc<RootCertStore>,
    revoked: Option<Vec<CertificateRevocationListDer<'static>>>,
    asked: ClientCerts,
) -> std::result::Result<Arc<dyn ClientCertVerifier>, impl Display> {
    let builder = WebPkiClientVerifier::builder(roots);
    let builder = match revoked {
        Some(lists) => builder.with_crls(lists).enforce_revocation_expiration(),
        None => builder,
    };
    match asked {
        ClientCerts::Required => builder.build(),
        ClientCerts::Optional | ClientCerts::Off => builder.allow_unauthenticated().build(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_certificates_are_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let cert = directory.path().join("cert.pem");
        std::fs::write(&cert, "not a certificate").unwrap();
        let files = TlsFiles { cert: cert.clone(), key: directory.path().join("key.pem"), clients: None };
        let error = Acceptors::read(&files).err().expect("this is refused").to_string();
        assert!(error.starts_with(&cert.display().to_string()), "{error}");
    }
}
