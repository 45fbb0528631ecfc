//! The answers of GetObjectAttributes and of uploads by form.

use super::multipart::checksum;
use crate::{
    checksum::Checksum,
    etag::ETag,
    xml::{Document, XmlWriter},
};

/// `GetObjectAttributesResponse`: what was asked for and is known.
#[derive(Clone, Debug, Default)]
pub struct GetObjectAttributesResponse {
    /// The tag.
    pub etag: Option<ETag>,
    /// The checksum.
    pub checksum: Option<Checksum>,
    /// The parts of an object that was uploaded in parts.
    pub parts: Option<ObjectParts>,
    /// The storage class.
    pub storage_class: Option<String>,
    /// The logical size in bytes.
    pub size: Option<u64>,
}

/// A page of an object's parts.
#[derive(Clone, Debug, Default)]
pub struct ObjectParts {
    /// How many parts the object has.
    pub total: usize,
    /// As asked.
    pub part_number_marker: u32,
    /// Where the next page starts.
    pub next_part_number_marker: Option<u32>,
    /// As asked, at most 1000.
    pub max_parts: u32,
    /// Whether there is more.
    pub is_truncated: bool,
    /// Number, size and checksum of each.
    pub parts: Vec<(u32, u64, Option<Checksum>)>,
}

impl Document for GetObjectAttributesResponse {
    fn write(&self, xml: &mut XmlWriter) {
        xml.open_root("GetObjectAttributesResponse");
        // Without the quotes that it has everywhere else: so S3 writes it here.
        xml.optional("ETag", self.etag.as_ref().map(ETag::as_str));
        if let Some(whole) = &self.checksum {
            xml.open("Checksum");
            // Without the number of parts, unlike everywhere else: so S3 tells it here.
            checksum(xml, Checksum::full(whole.algorithm(), whole.bytes()).as_ref());
            xml.text("ChecksumType", whole.checksum_type().as_str());
            xml.close();
        }
        if let Some(page) = &self.parts {
            xml.open("ObjectParts");
            xml.value("PartsCount", page.total);
            xml.value("PartNumberMarker", page.part_number_marker);
            if let Some(next) = page.next_part_number_marker {
                xml.value("NextPartNumberMarker", next);
            }
            xml.value("MaxParts", page.max_parts);
            xml.value("IsTruncated", page.is_truncated);
            for (number, size, part_checksum) in &page.parts {
                xml.open("Part");
                xml.value("PartNumber", number);
                xml.value("Size", size);
                checksum(xml, part_checksum.as_ref());
                xml.close();
            }
            xml.close();
        }
        xml.optional("StorageClass", self.storage_class.as_deref());
        if let Some(size) = self.size {
            xml.value("ObjectSize", size);
        }
        xml.close();
    }
}

/// `PostResponse`: the answer to a form that asks for status 201.
#[derive(Clone, Debug)]
pub struct PostResponse {
    /// The object's URL.
    pub location: String,
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: String,
    /// The object's tag.
    pub etag: ETag,
}

impl Document for PostResponse {
    fn write(&self, xml: &mut XmlWriter) {
        xml.open("PostResponse");
        xml.text("Location", &self.location);
        xml.text("Bucket", &self.bucket);
        xml.text("Key", &self.key);
        xml.text("ETag", &self.etag.quoted());
        xml.close();
    }
}
