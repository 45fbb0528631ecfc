//! How the answers about single objects are written.

use super::{CopyResult, DeleteResult, multipart::checksum};
use crate::{
    timestamp::iso8601,
    xml::{Document, XmlWriter},
};

impl Document for CopyResult {
    fn write(&self, xml: &mut XmlWriter) {
        xml.open_root(if self.part { "CopyPartResult" } else { "CopyObjectResult" });
        xml.text("LastModified", &iso8601(self.last_modified));
        xml.text("ETag", &self.etag.quoted());
        if !self.part {
            xml.optional("ChecksumType", self.checksum.map(|checksum| checksum.checksum_type().as_str()));
        }
        checksum(xml, self.checksum.as_ref());
        xml.close();
    }
}

impl Document for DeleteResult {
    fn write(&self, xml: &mut XmlWriter) {
        xml.open_root("DeleteResult");
        for deleted in &self.deleted {
            xml.open("Deleted");
            xml.text("Key", &deleted.key);
            xml.optional("VersionId", deleted.version_id.as_deref());
            if let Some(marker) = &deleted.delete_marker_version_id {
                xml.value("DeleteMarker", true);
                xml.text("DeleteMarkerVersionId", marker);
            }
            xml.close();
        }
        for failure in &self.errors {
            xml.open("Error");
            xml.text("Key", &failure.key);
            xml.optional("VersionId", failure.version_id.as_deref());
            xml.text("Code", failure.error.code().as_str());
            xml.text("Message", failure.error.message());
            xml.close();
        }
        xml.close();
    }
}
