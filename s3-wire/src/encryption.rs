//! A bucket's default encryption.
//!
//! Source: PutBucketEncryption (Amazon S3 API Reference).

use crate::{
    error::{ErrorCode, Result, S3Error},
    headers::ServerSide,
    xml::{
        Document, XmlWriter,
        reader::Elements,
        request::{either, malformed, set_once},
    },
};

/// `ServerSideEncryptionConfiguration`: what objects are encrypted with whose writers say nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncryptionConfiguration {
    /// The keys, where the rule names them.
    pub server: Option<ServerSide>,
    /// `BucketKeyEnabled`: that new objects under `aws:kms` use the key of the bucket. Such objects
    /// tell so, and are encrypted like others: no provider is asked for a key of an object.
    pub bucket_key: bool,
    /// `BlockedEncryptionTypes`, where the rule has them: whether writes with keys of customers
    /// are refused.
    pub blocks_customer_keys: Option<bool>,
}

impl EncryptionConfiguration {
    /// Reads a document.
    ///
    /// # Errors
    /// `MalformedXML`, also for none or several rules, for one that says nothing and for unknown
    /// algorithms; `NotImplemented` for `aws:kms:dsse`; `InvalidArgument` for a key's name without
    /// `aws:kms`.
    pub fn parse(document: &[u8]) -> Result<Self> {
        let (mut rules, mut server, mut bucket_key, mut blocks_customer_keys) = (0, None, None, None);
        Elements::parse(document, "ServerSideEncryptionConfiguration", |xml| {
            xml.children(|xml, name| match name {
                "Rule" => {
                    rules += 1;
                    xml.children(|xml, name| match name {
                        "ApplyServerSideEncryptionByDefault" => set_once(&mut server, by_default(xml)?),
                        "BucketKeyEnabled" => set_once(&mut bucket_key, xml.boolean()?),
                        "BlockedEncryptionTypes" => set_once(&mut blocks_customer_keys, blocked_types(xml)?),
                        _ => Err(malformed()),
                    })
                }
                _ => Err(malformed()),
            })
        })?;
        if rules != 1 || (server.is_none() && blocks_customer_keys.is_none()) {
            return Err(malformed());
        }
        Ok(Self { server, bucket_key: bucket_key.unwrap_or(false), blocks_customer_keys })
    }
}

/// Whether `SSE-C` is among the types: it is that or `NONE`.
fn blocked_types(xml: &mut Elements<'_>) -> Result<bool> {
    let mut customer_keys = None;
    xml.children(|xml, name| match name {
        "EncryptionType" => set_once(&mut customer_keys, either(&xml.text()?, "SSE-C", "NONE")?),
        _ => Err(malformed()),
    })?;
    customer_keys.ok_or_else(malformed)
}

fn by_default(xml: &mut Elements<'_>) -> Result<ServerSide> {
    let (mut algorithm, mut key_id) = (None, None);
    xml.children(|xml, name| match name {
        "SSEAlgorithm" => set_once(&mut algorithm, xml.text()?),
        "KMSMasterKeyID" => set_once(&mut key_id, xml.text()?),
        _ => Err(malformed()),
    })?;
    match (algorithm.as_deref(), key_id) {
        (Some("AES256"), None) => Ok(ServerSide::Aes256),
        (Some("AES256"), Some(key_id)) => Err(S3Error::invalid_argument(
            "ApplyServerSideEncryptionByDefault",
            key_id,
            "a KMSMasterKeyID is not applicable if the default sse algorithm is not aws:kms or aws:kms:dsse",
        )),
        (Some("aws:kms"), key_id) => Ok(ServerSide::Kms(key_id)),
        (Some("aws:kms:dsse"), _) => Err(S3Error::new(ErrorCode::NotImplemented).field("Value", "aws:kms:dsse")),
        _ => Err(malformed()),
    }
}

impl Document for EncryptionConfiguration {
    fn write(&self, xml: &mut XmlWriter) {
        xml.open_root("ServerSideEncryptionConfiguration");
        xml.open("Rule");
        if let Some(server) = &self.server {
            xml.open("ApplyServerSideEncryptionByDefault");
            match server {
                ServerSide::Aes256 => xml.text("SSEAlgorithm", "AES256"),
                ServerSide::Kms(key_id) => {
                    xml.text("SSEAlgorithm", "aws:kms");
                    xml.optional("KMSMasterKeyID", key_id.as_deref());
                }
            }
            xml.close();
        }
        if let Some(blocks) = self.blocks_customer_keys {
            xml.open("BlockedEncryptionTypes");
            xml.text("EncryptionType", if blocks { "SSE-C" } else { "NONE" });
            xml.close();
        }
        xml.value("BucketKeyEnabled", self.bucket_key);
        xml.close();
        xml.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read_as_it_is_written() {
        let servers = [ServerSide::Aes256, ServerSide::Kms(None), ServerSide::Kms(Some("key".into()))].map(Some);
        for server in servers.into_iter().chain([None]) {
            for blocks_customer_keys in [Some(true), Some(false), None] {
                let configuration =
                    EncryptionConfiguration { server: server.clone(), bucket_key: true, blocks_customer_keys };
                let read = EncryptionConfiguration::parse(&configuration.to_bytes());
                if server.is_none() && blocks_customer_keys.is_none() {
                    assert_eq!(read.unwrap_err().code(), ErrorCode::MalformedXML, "a rule that says nothing");
                } else {
                    assert_eq!(read.unwrap(), configuration);
                }
            }
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        let code = |inside: &str| {
            let document = format!("<ServerSideEncryptionConfiguration>{inside}</ServerSideEncryptionConfiguration>");
            EncryptionConfiguration::parse(document.as_bytes()).map_err(|error| error.code())
        };
        let rule = |inside: &str| {
            code(&format!(
                "<Rule><ApplyServerSideEncryptionByDefault>{inside}</ApplyServerSideEncryptionByDefault></Rule>"
            ))
        };
        for inside in ["", "<Rule/>", "<Colour/>"] {
            assert_eq!(code(inside), Err(ErrorCode::MalformedXML), "{inside}");
        }
        assert_eq!(rule("<SSEAlgorithm>aes</SSEAlgorithm>"), Err(ErrorCode::MalformedXML));
        assert_eq!(
            rule("<SSEAlgorithm>AES256</SSEAlgorithm><KMSMasterKeyID>k</KMSMasterKeyID>"),
            Err(ErrorCode::InvalidArgument)
        );
        assert_eq!(rule("<SSEAlgorithm>aws:kms:dsse</SSEAlgorithm>"), Err(ErrorCode::NotImplemented));
    }
}
