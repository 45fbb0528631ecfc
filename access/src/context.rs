//! Condition keys and where their values come from.

use std::collections::BTreeMap;

/// A condition key: its name in lower case, and the tag it asks for (`s3:existingobjecttag/…`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    name: &'static str,
    tag: Option<String>,
}

impl Key {
    /// Reads a key; `None` when neither IAM nor S3 has it. Names are compared without regard to
    /// case, tags exactly.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, tag) = match text.split_once('/') {
            None => (text, None),
            Some((name, tag)) => (name, Some(tag.to_owned())),
        };
        let known = |names: &[&'static str]| names.iter().copied().find(|known| known.eq_ignore_ascii_case(name));
        let name = match &tag {
            None => known(PLAIN)?,
            Some(tag) if !tag.is_empty() => known(TAGGED)?,
            Some(_) => return None,
        };
        Some(Self { name, tag })
    }

    /// The name in lower case, without a tag.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The tag after the slash.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// Whether its value is what an object has, so that the object must be looked at.
    pub fn is_of_object(&self) -> bool {
        self.name == "s3:existingobjecttag"
    }
}

/// The values of condition keys in one request.
pub trait Context {
    /// The values of a key; `None` when the request has none.
    fn values(&self, key: &Key) -> Option<Vec<String>>;
}

/// No key has a value.
pub struct NoContext;

impl Context for NoContext {
    fn values(&self, _: &Key) -> Option<Vec<String>> {
        None
    }
}

/// Values that were written down.
#[derive(Clone, Debug, Default)]
pub struct MapContext(BTreeMap<Key, Vec<String>>);

impl MapContext {
    /// Adds a value; `false` when there is no such key.
    pub fn add(&mut self, key: &str, value: impl Into<String>) -> bool {
        let Some(key) = Key::parse(key) else { return false };
        self.0.entry(key).or_default().push(value.into());
        true
    }
}

impl<K: AsRef<str>, V: Into<String>> FromIterator<(K, V)> for MapContext {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut map = Self::default();
        for (key, value) in pairs {
            map.add(key.as_ref(), value);
        }
        map
    }
}

impl Context for MapContext {
    fn values(&self, key: &Key) -> Option<Vec<String>> {
        self.0.get(key).cloned()
    }
}

/// Keys that need a tag.
const TAGGED: &[&str] = &[
    "aws:principaltag",
    "aws:requesttag",
    "aws:resourcetag",
    "s3:buckettag",
    "s3:existingobjecttag",
    "s3:requestobjecttag",
];

/// Keys of IAM and of S3. Some never have a value here, such as those of VPC endpoints: a request
/// without one is judged as in AWS.
///
/// Source: Service Authorization Reference, "Condition keys for Amazon S3"; IAM User Guide, "AWS
/// global condition context keys".
const PLAIN: &[&str] = &[
    "aws:calledvia",
    "aws:calledviafirst",
    "aws:calledvialast",
    "aws:currenttime",
    "aws:ec2instancesourceprivateipv4",
    "aws:ec2instancesourcevpc",
    "aws:epochtime",
    "aws:federatedprovider",
    "aws:multifactorauthage",
    "aws:multifactorauthpresent",
    "aws:principalaccount",
    "aws:principalarn",
    "aws:principalisawsservice",
    "aws:principalorgid",
    "aws:principalorgpaths",
    "aws:principalservicename",
    "aws:principalservicenameslist",
    "aws:principaltype",
    "aws:referer",
    "aws:requestedregion",
    "aws:resourceaccount",
    "aws:resourceorgid",
    "aws:resourceorgpaths",
    "aws:securetransport",
    "aws:sourceaccount",
    "aws:sourcearn",
    "aws:sourceidentity",
    "aws:sourceip",
    "aws:sourceorgid",
    "aws:sourceorgpaths",
    "aws:sourceowner",
    "aws:sourcevpc",
    "aws:sourcevpce",
    "aws:tagkeys",
    "aws:tokenissuetime",
    "aws:useragent",
    "aws:userid",
    "aws:username",
    "aws:viaawsservice",
    "aws:vpcsourceip",
    "s3:accessgrantsinstancearn",
    "s3:accesspointnetworkorigin",
    "s3:authtype",
    "s3:dataaccesspointaccount",
    "s3:dataaccesspointarn",
    "s3:delimiter",
    "s3:if-match",
    "s3:if-none-match",
    "s3:inventoryaccessibleoptionalfields",
    "s3:jobsuspendedcause",
    "s3:locationconstraint",
    "s3:max-keys",
    "s3:object-lock-legal-hold",
    "s3:object-lock-mode",
    "s3:object-lock-remaining-retention-days",
    "s3:object-lock-retain-until-date",
    "s3:objectcreationoperation",
    "s3:prefix",
    "s3:requestobjecttagkeys",
    "s3:resourceaccount",
    "s3:signatureage",
    "s3:signatureversion",
    "s3:tlsversion",
    "s3:versionid",
    "s3:x-amz-acl",
    "s3:x-amz-content-sha256",
    "s3:x-amz-copy-source",
    "s3:x-amz-grant-full-control",
    "s3:x-amz-grant-read",
    "s3:x-amz-grant-read-acp",
    "s3:x-amz-grant-write",
    "s3:x-amz-grant-write-acp",
    "s3:x-amz-metadata-directive",
    "s3:x-amz-object-ownership",
    "s3:x-amz-server-side-encryption",
    "s3:x-amz-server-side-encryption-aws-kms-key-id",
    "s3:x-amz-server-side-encryption-customer-algorithm",
    "s3:x-amz-storage-class",
    "s3:x-amz-website-redirect-location",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_in_any_case_and_tags_exactly() {
        assert_eq!(Key::parse("AWS:sourceip"), Key::parse("aws:SourceIp"));
        assert_ne!(Key::parse("s3:ExistingObjectTag/a"), Key::parse("s3:ExistingObjectTag/A"));
        for unknown in
            ["", "aws:", "SourceIp", "s3:ExistingObjectTag", "s3:ExistingObjectTag/", "s3:prefix/x", "ec2:Owner"]
        {
            assert_eq!(Key::parse(unknown), None, "{unknown}");
        }
        assert!(PLAIN.is_sorted() && TAGGED.is_sorted());
    }
}
