//! Policies of users: three built-in ones, and documents.

use access::{Document, Identity};
use std::sync::{Arc, LazyLock};

/// What a user may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Everything that no policy denies.
    Admin,
    /// Everything S3 offers.
    ReadWrite,
    /// `s3:Get*` and `s3:List*`.
    ReadOnly,
    /// What a document says.
    Document(Arc<Written>),
}

/// A policy document and its text.
#[derive(Debug, PartialEq, Eq)]
pub struct Written {
    /// What it says.
    pub document: Document,
    /// As it was written.
    pub text: String,
}

impl Written {
    /// Reads the document of a user's policy.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let document = Document::identity(text.as_bytes()).map_err(|error| error.to_string())?;
        Ok(Self { document, text: text.to_owned() })
    }
}

static READ_WRITE: LazyLock<Document> = LazyLock::new(|| built_in(r#""s3:*""#));
static READ_ONLY: LazyLock<Document> = LazyLock::new(|| built_in(r#"["s3:Get*","s3:List*"]"#));

fn built_in(actions: &str) -> Document {
    let document =
        format!(r#"{{"Version":"2012-10-17","Statement":{{"Effect":"Allow","Action":{actions},"Resource":"*"}}}}"#);
    Document::identity(document.as_bytes()).expect("a built-in policy is a policy")
}

impl Policy {
    /// The built-in policy of a name.
    pub fn built_in(name: &str) -> Option<Self> {
        match name {
            "admin" => Some(Self::Admin),
            "readwrite" => Some(Self::ReadWrite),
            "readonly" => Some(Self::ReadOnly),
            _ => None,
        }
    }

    /// What is written in it; an administrator's says nothing.
    fn document(&self) -> Option<&Document> {
        match self {
            Self::Admin => None,
            Self::ReadWrite => Some(&READ_WRITE),
            Self::ReadOnly => Some(&READ_ONLY),
            Self::Document(written) => Some(&written.document),
        }
    }
}

/// Everything that a user's policies say together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rights {
    /// Everything that no policy denies.
    pub(super) admin: bool,
    document: Option<Document>,
}

impl Rights {
    /// What some policies say: what one of them denies, none allows.
    pub(super) fn of<'p>(policies: impl IntoIterator<Item = &'p Policy>) -> Self {
        let mut rights = Self::default();
        let mut documents = Vec::new();
        for policy in policies {
            rights.admin |= *policy == Policy::Admin;
            documents.extend(policy.document());
        }
        rights.document = Document::joined(documents);
        rights
    }

    /// As the decision wants it.
    pub(super) fn identity(&self) -> Identity<'_> {
        Identity { admin: self.admin, policy: self.document.as_ref(), session: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use access::{NoContext, Question, decide};

    /// Whether policies together let their user do something to an object.
    fn allows(policies: &[&Policy], action: &str) -> bool {
        let rights = Rights::of(policies.iter().copied());
        let question = Question {
            caller: None,
            identity: rights.identity(),
            action,
            resource: "arn:aws:s3:::b/a",
            context: &NoContext,
            bucket: None,
            object: None,
        };
        decide(&question).allowed
    }

    #[test]
    fn built_in_policies_cover_what_they_say() {
        assert!(allows(&[&Policy::ReadOnly], "s3:GetObject") && allows(&[&Policy::ReadOnly], "s3:ListBucket"));
        assert!(!allows(&[&Policy::ReadOnly], "s3:PutObject") && !allows(&[&Policy::ReadOnly], "s3:DeleteObject"));
        assert!(
            allows(&[&Policy::ReadWrite], "s3:DeleteBucket") && allows(&[&Policy::ReadWrite], "s3:PutBucketPolicy")
        );
        assert!(!allows(&[&Policy::ReadWrite], "deltaweir:Settle") && allows(&[&Policy::Admin], "deltaweir:Settle"));
    }

    #[test]
    fn what_one_policy_denies_no_other_allows() {
        let denies = r#"{"Statement":{"Effect":"Deny","Action":"s3:DeleteObject","Resource":"*"}}"#;
        let denies = Policy::Document(Arc::new(Written::parse(denies).unwrap()));
        assert!(allows(&[&denies, &Policy::ReadWrite], "s3:PutObject"));
        for broad in [Policy::ReadWrite, Policy::Admin] {
            assert!(allows(&[&broad], "s3:DeleteObject"));
            assert!(!allows(&[&broad, &denies], "s3:DeleteObject"));
        }
        assert!(!allows(&[], "s3:GetObject"));
    }
}
