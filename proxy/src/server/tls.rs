//! TLS of the S3 listener: TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1 by ALPN.

use crate::config::TlsFiles;
use std::{
    io::{Error, ErrorKind, Result},
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};

/// The certificate new connections are shown; those that are open keep theirs.
pub struct Certificate(RwLock<TlsAcceptor>);

impl Certificate {
    /// Reads certificate chain and key.
    ///
    /// # Errors
    /// A file that cannot be read or is not PEM; a key that does not belong to the certificate.
    pub fn read(files: &TlsFiles) -> Result<Self> {
        Ok(Self(RwLock::new(acceptor(files)?)))
    }

    /// Reads them anew; on an error the ones before stay.
    ///
    /// # Errors
    /// As [`Certificate::read`].
    pub fn replace(&self, files: &TlsFiles) -> Result<()> {
        let acceptor = acceptor(files)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = acceptor;
        Ok(())
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Reads certificate chain and key.
///
/// # Errors
/// A file that cannot be read or is not PEM; a key that does not belong to the certificate.
fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor> {
    let invalid = |path: &Path, error: &dyn std::fmt::Display| {
        Error::new(ErrorKind::InvalidInput, format!("{}: {error}", path.display()))
    };
    let chain = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>)
        .map_err(|error| invalid(&files.cert, &error))?;
    if chain.is_empty() {
        return Err(invalid(&files.cert, &"there is no certificate in it"));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| invalid(&files.key, &error))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| invalid(&files.cert, &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_certificates_are_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let cert = directory.path().join("cert.pem");
        std::fs::write(&cert, "not a certificate").unwrap();
        let files = TlsFiles { cert: cert.clone(), key: directory.path().join("key.pem") };
        let error = acceptor(&files).err().expect("this is refused").to_string();
        assert!(error.starts_with(&cert.display().to_string()), "{error}");
    }
}
