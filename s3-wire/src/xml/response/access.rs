//! Who may do what, as S3 answers it.

use super::{Owner, listings::owner};
use crate::xml::{
    Document, XmlWriter,
    request::{ObjectOwnership, PublicAccessBlockConfiguration},
};

/// `AccessControlPolicy`.
#[derive(Clone, Debug)]
pub struct AccessControlPolicy {
    /// The owner of the bucket or object.
    pub owner: Owner,
    /// The grants in order.
    pub grants: Vec<ListedGrant>,
}

/// One grant of an [`AccessControlPolicy`].
#[derive(Clone, Debug)]
pub struct ListedGrant {
    /// To whom.
    pub grantee: ListedGrantee,
    /// Such as `READ`.
    pub permission: &'static str,
}

/// Whom a grant names.
#[derive(Clone, Debug)]
pub enum ListedGrantee {
    /// An account.
    Account(Owner),
    /// A group, by its URI.
    Group(&'static str),
}

/// `PolicyStatus`.
#[derive(Clone, Copy, Debug)]
pub struct PolicyStatus {
    /// Whether the bucket is public.
    pub is_public: bool,
}

impl Document for AccessControlPolicy {
    fn write(&self, xml: &mut XmlWriter) {
        xml.open_root("AccessControlPolicy");
        owner(xml, "Owner", &self.owner);
        xml.open("AccessControlList");
        for grant in &self.grants {
            xml.open("Grant");
            let kind = match grant.grantee {
                ListedGrantee::Account(_) => "CanonicalUser",
                ListedGrantee::Group(_) => "Group",
            };
            let attributes = [("xmlns:xsi", "http://www.w3.org/2001/XMLSchema-instance"), ("xsi:type", kind)];
            xml.open_with("Grantee", attributes);
            match &grant.grantee {
                ListedGrantee::Account(account) => {
                    xml.text("ID", &account.id);
                    xml.text("DisplayName", &account.display_name);
                }
                ListedGrantee::Group(uri) => xml.text("URI", uri),
            }
            xml.close();
            xml.text("Permission", grant.permission);
            xml.close();
        }
        xml.close();
        xml.close();
    }
}

impl Document for PolicyStatus {
    fn write(&self, xml: &mut XmlWriter) {
        xml.open_root("PolicyStatus");
        xml.value("IsPublic", self.is_public);
        xml.close();
    }
}

impl Document for ObjectOwnership {
    fn write(&self, xml: &mut XmlWriter) {
        xml.open_root("OwnershipControls");
        xml.open("Rule");
        xml.text("ObjectOwnership", self.as_str());
        xml.close();
        xml.close();
    }
}

impl Document for PublicAccessBlockConfiguration {
    fn write(&self, xml: &mut XmlWriter) {
        xml.open_root("PublicAccessBlockConfiguration");
        xml.value("BlockPublicAcls", self.block_public_acls);
        xml.value("IgnorePublicAcls", self.ignore_public_acls);
        xml.value("BlockPublicPolicy", self.block_public_policy);
        xml.value("RestrictPublicBuckets", self.restrict_public_buckets);
        xml.close();
    }
}
