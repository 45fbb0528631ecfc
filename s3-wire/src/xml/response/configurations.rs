//! Configurations of buckets and objects, as S3 answers them.

use crate::xml::{Document, XmlWriter};

/// A configuration whose document says the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultConfiguration {
    /// A root element without content (`BucketLoggingStatus`, `NotificationConfiguration`,
    /// `AccelerateConfiguration`).
    Empty(&'static str),
    /// A list of configurations that has none.
    EmptyList(&'static str),
    /// `AccelerateConfiguration`: suspended.
    AccelerationSuspended,
    /// `RequestPaymentConfiguration`: the owner pays.
    OwnerPays,
    /// `ServerSideEncryptionConfiguration`: `AES256`.
    Aes256,
}

impl Document for DefaultConfiguration {
    fn write(&self, xml: &mut XmlWriter) {
        match self {
            Self::Empty(root) => xml.open_root(root),
            Self::EmptyList(root) => {
                xml.open_root(root);
                xml.value("IsTruncated", false);
            }
            Self::AccelerationSuspended => {
                xml.open_root("AccelerateConfiguration");
                xml.text("Status", "Suspended");
            }
            Self::OwnerPays => {
                xml.open_root("RequestPaymentConfiguration");
                xml.text("Payer", "BucketOwner");
            }
            Self::Aes256 => {
                xml.open_root("ServerSideEncryptionConfiguration");
                xml.open("Rule");
                xml.open("ApplyServerSideEncryptionByDefault");
                xml.text("SSEAlgorithm", "AES256");
                xml.close();
                xml.value("BucketKeyEnabled", false);
                xml.close();
            }
        }
        xml.close();
    }
}
