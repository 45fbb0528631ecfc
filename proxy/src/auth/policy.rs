//! The policy of a user: one of three built-in ones, or a document.

use access::{Document, Identity};
use std::sync::LazyLock;

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
    Document(Document),
}

static READ_WRITE: LazyLock<Document> = LazyLock::new(|| built_in(r#""s3:*""#));
static READ_ONLY: LazyLock<Document> = LazyLock::new(|| built_in(r#"["s3:Get*","s3:List*"]"#));

fn built_in(actions: &str) -> Document {
    let document =
        format!(r#"{{"Version":"2012-10-17","Statement":{{"Effect":"Allow","Action":{actions},"Resource":"*"}}}}"#);
    Document::identity(document.as_bytes()).expect("a built-in policy is a policy")
}

impl Policy {
    /// As the decision wants it.
    pub fn identity(&self) -> Identity<'_> {
        let policy = match self {
            Self::Admin => None,
            Self::ReadWrite => Some(&*READ_WRITE),
            Self::ReadOnly => Some(&*READ_ONLY),
            Self::Document(document) => Some(document),
        };
        Identity { admin: *self == Self::Admin, policy, session: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use access::{NoContext, Question, decide};

    #[test]
    fn built_in_policies_cover_what_they_say() {
        let allows = |policy: Policy, action: &str| {
            let question = Question {
                caller: None,
                identity: policy.identity(),
                action,
                resource: "arn:aws:s3:::b/a",
                context: &NoContext,
                bucket: None,
                object: None,
            };
            decide(&question).allowed
        };
        assert!(allows(Policy::ReadOnly, "s3:GetObject") && allows(Policy::ReadOnly, "s3:ListBucket"));
        assert!(!allows(Policy::ReadOnly, "s3:PutObject") && !allows(Policy::ReadOnly, "s3:DeleteObject"));
        assert!(allows(Policy::ReadWrite, "s3:DeleteBucket") && allows(Policy::ReadWrite, "s3:PutBucketPolicy"));
        assert!(!allows(Policy::ReadWrite, "deltaweir:Settle") && allows(Policy::Admin, "deltaweir:Settle"));
    }
}
