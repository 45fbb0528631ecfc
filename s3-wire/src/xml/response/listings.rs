//! How listings are written.

use super::{
    BucketEntry, ListAllMyBucketsResult, ListObjectsResult, ListObjectsV2Result, ListVersionsResult,
    LocationConstraint, ObjectEntry, Owner, VersionOrMarker, VersioningConfiguration,
};
use crate::{
    address::percent,
    timestamp::iso8601,
    xml::{Document, XmlWriter},
};
use std::borrow::Cow;

/// Keys as they are, or encoded because the client asked for `encoding-type=url` (C73).
#[derive(Clone, Copy)]
pub(super) struct Encoding {
    pub(super) url: bool,
}

impl Encoding {
    pub(super) fn apply(self, text: &str) -> Cow<'_, str> {
        if self.url { percent::encode_path(text) } else { Cow::Borrowed(text) }
    }

    pub(super) fn optional(self, xml: &mut XmlWriter, name: &'static str, text: Option<&str>) {
        if let Some(text) = text {
            xml.text(name, &self.apply(text));
        }
    }

    pub(super) fn write_type(self, xml: &mut XmlWriter) {
        xml.optional("EncodingType", self.url.then_some("url"));
    }

    pub(super) fn common_prefixes(self, xml: &mut XmlWriter, prefixes: &[String]) {
        for prefix in prefixes {
            xml.open("CommonPrefixes");
            xml.text("Prefix", &self.apply(prefix));
            xml.close();
        }
    }
}

pub(super) fn owner(xml: &mut XmlWriter, name: &'static str, owner: &Owner) {
    xml.open(name);
    xml.text("ID", &owner.id);
    xml.text("DisplayName", &owner.display_name);
    xml.close();
}

impl Document for ListAllMyBucketsResult {
    fn write(&self, xml: &mut XmlWriter) {
        xml.open_root("ListAllMyBucketsResult");
        owner(xml, "Owner", &self.owner);
        xml.open("Buckets");
        for BucketEntry { name, created, region } in &self.buckets {
            xml.open("Bucket");
            xml.text("Name", name);
            xml.text("CreationDate", &iso8601(*created));
            xml.optional("BucketRegion", region.as_deref());
            xml.close();
        }
        xml.close();
        xml.optional("ContinuationToken", self.continuation_token.as_deref());
        xml.optional("Prefix", self.prefix.as_deref());
        xml.close();
    }
}

impl Document for LocationConstraint {
    fn write(&self, xml: &mut XmlWriter) {
        xml.open_root("LocationConstraint");
        if self.region != "us-east-1" {
            xml.characters(&self.region);
        }
        xml.close();
    }
}

impl Document for VersioningConfiguration {
    fn write(&self, xml: &mut XmlWriter) {
        xml.open_root("VersioningConfiguration");
        xml.optional(
            "Status",
            match self {
                Self::Unversioned => None,
                Self::Enabled => Some("Enabled"),
                Self::Suspended => Some("Suspended"),
            },
        );
        xml.close();
    }
}

/// About how long an object's entry is, with a key of usual length.
const ENTRY_LEN: usize = 448;

fn contents(xml: &mut XmlWriter, encoding: Encoding, objects: &[ObjectEntry]) {
    for object in objects {
        xml.open("Contents");
        xml.text("Key", &encoding.apply(&object.key));
        described(xml, object);
        xml.close();
    }
}

/// What a listing says of an object beside its name.
fn described(xml: &mut XmlWriter, object: &ObjectEntry) {
    xml.text("LastModified", &iso8601(object.last_modified));
    xml.text("ETag", &object.etag.quoted());
    if let Some((algorithm, kind)) = object.checksum {
        xml.text("ChecksumAlgorithm", algorithm.as_str());
        xml.text("ChecksumType", kind.as_str());
    }
    xml.value("Size", object.size);
    if let Some(by) = &object.owner {
        owner(xml, "Owner", by);
    }
    xml.text("StorageClass", &object.storage_class);
}

impl Document for ListVersionsResult {
    fn write(&self, xml: &mut XmlWriter) {
        let encoding = Encoding { url: self.encoding_type_url };
        xml.open_root("ListVersionsResult");
        xml.text("Name", &self.bucket);
        xml.text("Prefix", &encoding.apply(&self.prefix));
        xml.text("KeyMarker", &encoding.apply(&self.key_marker));
        xml.text("VersionIdMarker", &self.version_id_marker);
        encoding.optional(xml, "NextKeyMarker", self.next_key_marker.as_deref());
        xml.optional("NextVersionIdMarker", self.next_version_id_marker.as_deref());
        xml.value("MaxKeys", self.max_keys);
        encoding.optional(xml, "Delimiter", self.delimiter.as_deref());
        encoding.write_type(xml);
        xml.value("IsTruncated", self.is_truncated);
        for version in &self.versions {
            let named = |xml: &mut XmlWriter, key: &str| {
                xml.text("Key", &encoding.apply(key));
                xml.text("VersionId", &version.version_id);
                xml.value("IsLatest", version.is_latest);
            };
            match &version.what {
                VersionOrMarker::Version(object) => {
                    xml.open("Version");
                    named(xml, &object.key);
                    described(xml, object);
                }
                VersionOrMarker::Marker { key, last_modified, owner: by } => {
                    xml.open("DeleteMarker");
                    named(xml, key);
                    xml.text("LastModified", &iso8601(*last_modified));
                    owner(xml, "Owner", by);
                }
            }
            xml.close();
        }
        encoding.common_prefixes(xml, &self.common_prefixes);
        xml.close();
    }
}

impl Document for ListObjectsResult {
    fn len_hint(&self) -> usize {
        ENTRY_LEN * (1 + self.objects.len() + self.common_prefixes.len())
    }

    fn write(&self, xml: &mut XmlWriter) {
        let encoding = Encoding { url: self.encoding_type_url };
        xml.open_root("ListBucketResult");
        xml.text("Name", &self.bucket);
        xml.text("Prefix", &encoding.apply(&self.prefix));
        xml.text("Marker", &encoding.apply(&self.marker));
        encoding.optional(xml, "NextMarker", self.next_marker.as_deref());
        xml.value("MaxKeys", self.max_keys);
        encoding.optional(xml, "Delimiter", self.delimiter.as_deref());
        encoding.write_type(xml);
        xml.value("IsTruncated", self.is_truncated);
        contents(xml, encoding, &self.objects);
        encoding.common_prefixes(xml, &self.common_prefixes);
        xml.close();
    }
}

impl Document for ListObjectsV2Result {
    fn len_hint(&self) -> usize {
        ENTRY_LEN * (1 + self.objects.len() + self.common_prefixes.len())
    }

    fn write(&self, xml: &mut XmlWriter) {
        let encoding = Encoding { url: self.encoding_type_url };
        xml.open_root("ListBucketResult");
        xml.text("Name", &self.bucket);
        xml.text("Prefix", &encoding.apply(&self.prefix));
        encoding.optional(xml, "StartAfter", self.start_after.as_deref());
        xml.optional("ContinuationToken", self.continuation_token.as_deref());
        xml.optional("NextContinuationToken", self.next_continuation_token.as_deref());
        xml.value("KeyCount", self.objects.len() + self.common_prefixes.len());
        xml.value("MaxKeys", self.max_keys);
        encoding.optional(xml, "Delimiter", self.delimiter.as_deref());
        encoding.write_type(xml);
        xml.value("IsTruncated", self.is_truncated);
        contents(xml, encoding, &self.objects);
        encoding.common_prefixes(xml, &self.common_prefixes);
        xml.close();
    }
}
