//! How the answers of multipart uploads are written.

use super::{
    CompleteMultipartUploadResult, InitiateMultipartUploadResult, ListMultipartUploadsResult, ListPartsResult,
    listings::{Encoding, owner},
};
use crate::{
    checksum::{Checksum, ChecksumAlgorithm, ChecksumType},
    timestamp::iso8601,
    xml::{Document, XmlWriter},
};

pub(super) fn checksum(xml: &mut XmlWriter, checksum: Option<&Checksum>) {
    if let Some(checksum) = checksum {
        xml.text(checksum.algorithm().element(), &checksum.to_wire());
    }
}

fn requested(xml: &mut XmlWriter, requested: Option<(ChecksumAlgorithm, ChecksumType)>) {
    if let Some((algorithm, kind)) = requested {
        xml.text("ChecksumAlgorithm", algorithm.as_str());
        xml.text("ChecksumType", kind.as_str());
    }
}

impl Document for InitiateMultipartUploadResult {
    fn write(&self, xml: &mut XmlWriter) {
        xml.open_root("InitiateMultipartUploadResult");
        xml.text("Bucket", &self.bucket);
        xml.text("Key", &self.key);
        xml.text("UploadId", &self.upload_id);
        xml.close();
    }
}

impl Document for ListPartsResult {
    fn write(&self, xml: &mut XmlWriter) {
        let encoding = Encoding { url: self.encoding_type_url };
        xml.open_root("ListPartsResult");
        xml.text("Bucket", &self.bucket);
        encoding.write_type(xml);
        xml.text("Key", &encoding.apply(&self.key));
        xml.text("UploadId", &self.upload_id);
        owner(xml, "Initiator", &self.initiator);
        owner(xml, "Owner", &self.owner);
        xml.text("StorageClass", &self.storage_class);
        requested(xml, self.checksum);
        xml.value("PartNumberMarker", self.part_number_marker);
        if let Some(next) = self.next_part_number_marker {
            xml.value("NextPartNumberMarker", next);
        }
        xml.value("MaxParts", self.max_parts);
        xml.value("IsTruncated", self.is_truncated);
        for part in &self.parts {
            xml.open("Part");
            xml.value("PartNumber", part.number);
            xml.text("LastModified", &iso8601(part.last_modified));
            xml.text("ETag", &part.etag.quoted());
            xml.value("Size", part.size);
            checksum(xml, part.checksum.as_ref());
            xml.close();
        }
        xml.close();
    }
}

impl Document for ListMultipartUploadsResult {
    fn write(&self, xml: &mut XmlWriter) {
        let encoding = Encoding { url: self.encoding_type_url };
        xml.open_root("ListMultipartUploadsResult");
        xml.text("Bucket", &self.bucket);
        xml.text("KeyMarker", &encoding.apply(&self.key_marker));
        xml.text("UploadIdMarker", &self.upload_id_marker);
        encoding.optional(xml, "NextKeyMarker", self.next_key_marker.as_deref());
        xml.optional("NextUploadIdMarker", self.next_upload_id_marker.as_deref());
        xml.text("Prefix", &encoding.apply(&self.prefix));
        encoding.optional(xml, "Delimiter", self.delimiter.as_deref());
        encoding.write_type(xml);
        xml.value("MaxUploads", self.max_uploads);
        xml.value("IsTruncated", self.is_truncated);
        for upload in &self.uploads {
            xml.open("Upload");
            xml.text("Key", &encoding.apply(&upload.key));
            xml.text("UploadId", &upload.upload_id);
            owner(xml, "Initiator", &upload.initiator);
            owner(xml, "Owner", &upload.owner);
            xml.text("StorageClass", &upload.storage_class);
            xml.text("Initiated", &iso8601(upload.initiated));
            requested(xml, upload.checksum);
            xml.close();
        }
        encoding.common_prefixes(xml, &self.common_prefixes);
        xml.close();
    }
}

impl Document for CompleteMultipartUploadResult {
    fn write(&self, xml: &mut XmlWriter) {
        xml.open_root("CompleteMultipartUploadResult");
        xml.text("Location", &self.location);
        xml.text("Bucket", &self.bucket);
        xml.text("Key", &self.key);
        xml.text("ETag", &self.etag.quoted());
        checksum(xml, self.checksum.as_ref());
        xml.optional("ChecksumType", self.checksum.map(|checksum| checksum.checksum_type().as_str()));
        xml.close();
    }
}
