//! Policies: three built-in ones, and documents in the policy language of AWS as far as it can be kept without guessing. What a
//! document says and this evaluator does not know is refused when it is read, never passed over (C46).

use serde::Deserialize;
use std::fmt;

/// What a user may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Everything.
    Admin,
    /// Everything S3 offers.
    ReadWrite,
    /// `s3:Get*` and `s3:List*`.
    ReadOnly,
    /// What a document says.
    Document(PolicyDocument),
}

impl Policy {
    /// Whether the policy allows an action (`s3:GetObject`) on a resource (`arn:aws:s3:::bucket/key`).
    pub fn allows(&self, action: &str, resource: &str) -> bool {
        match self {
            Self::Admin => true,
            Self::ReadWrite => action.starts_with("s3:"),
            Self::ReadOnly => action.starts_with("s3:Get") || action.starts_with("s3:List"),
            Self::Document(document) => document.allows(action, resource),
        }
    }
}

/// A policy document: statements that allow or deny actions on resources. A Deny always wins; what nothing allows is denied.
///
/// Source: AWS IAM User Guide, "IAM JSON policy elements reference".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyDocument {
    statements: Vec<Statement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Statement {
    allow: bool,
    /// Lower case, because actions are compared without regard to case.
    actions: Vec<String>,
    /// Names without `arn:aws:s3:::`.
    resources: Vec<String>,
}

/// Why a document is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError(String);

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PolicyError {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenDocument {
    #[serde(rename = "Version")]
    version: String,
    #[serde(rename = "Id")]
    _id: Option<String>,
    #[serde(rename = "Statement")]
    statement: OneOrMany<WrittenStatement>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct WrittenStatement {
    #[serde(rename = "Sid")]
    _sid: Option<String>,
    effect: Effect,
    action: Option<OneOrMany<String>>,
    resource: Option<OneOrMany<String>>,
    not_action: Option<serde_json::Value>,
    not_resource: Option<serde_json::Value>,
    principal: Option<serde_json::Value>,
    not_principal: Option<serde_json::Value>,
    condition: Option<serde_json::Value>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
enum Effect {
    Allow,
    Deny,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    Many(Vec<T>),
    One(T),
}

impl<T> OneOrMany<T> {
    fn into_vec(self) -> Vec<T> {
        match self {
            Self::Many(many) => many,
            Self::One(one) => vec![one],
        }
    }
}

impl PolicyDocument {
    /// Reads a document.
    ///
    /// # Errors
    /// What is wrong with it or not supported: unknown fields, `Condition`, `NotAction`, `NotResource`, `Principal`, policy variables, actions of
    /// other services, resources that are not S3's.
    pub fn parse(json: &[u8]) -> Result<Self, PolicyError> {
        // Untagged enums lose the text of errors, so the statements are read one by one from plain values.
        let refuse = |message: String| PolicyError(message);
        let document: serde_json::Value = serde_json::from_slice(json).map_err(|error| refuse(error.to_string()))?;
        let statements = document.get("Statement").cloned().unwrap_or_default();
        let statements = match statements {
            serde_json::Value::Array(many) => many,
            one => vec![one],
        };
        for (index, statement) in statements.iter().enumerate() {
            WrittenStatement::deserialize(statement).map_err(|error| refuse(format!("Statement {index}: {error}")))?;
        }
        let written = WrittenDocument::deserialize(document).map_err(|error| refuse(error.to_string()))?;
        if written.version != "2012-10-17" {
            return Err(refuse(format!("Version {:?} is not supported, only \"2012-10-17\"", written.version)));
        }
        let statements = written.statement.into_vec();
        let read = |(index, statement): (usize, WrittenStatement)| {
            Statement::read(statement).map_err(|message| refuse(format!("Statement {index}: {message}")))
        };
        Ok(Self { statements: statements.into_iter().enumerate().map(read).collect::<Result<_, _>>()? })
    }

    fn allows(&self, action: &str, resource: &str) -> bool {
        let action = action.to_ascii_lowercase();
        let resource = resource.strip_prefix(ARN_PREFIX).unwrap_or(resource);
        let mut matching = self.statements.iter().filter(|statement| statement.covers(&action, resource)).peekable();
        matching.peek().is_some() && matching.all(|statement| statement.allow)
    }
}

const ARN_PREFIX: &str = "arn:aws:s3:::";

impl Statement {
    fn read(written: WrittenStatement) -> Result<Self, String> {
        for (name, value) in [
            ("NotAction", &written.not_action),
            ("NotResource", &written.not_resource),
            ("Principal", &written.principal),
            ("NotPrincipal", &written.not_principal),
            ("Condition", &written.condition),
        ] {
            if value.is_some() {
                return Err(format!("{name} is not supported"));
            }
        }
        let actions = written.action.map(OneOrMany::into_vec).unwrap_or_default();
        let resources = written.resource.map(OneOrMany::into_vec).unwrap_or_default();
        if actions.is_empty() || resources.is_empty() {
            return Err("Action and Resource are both needed".into());
        }
        for action in &actions {
            if action != "*" && !action.to_ascii_lowercase().starts_with("s3:") {
                return Err(format!("Action {action:?} is not one of s3:*"));
            }
        }
        let resource = |resource: String| match resource.strip_prefix(ARN_PREFIX) {
            _ if resource.contains("${") => Err(format!("Resource {resource:?}: policy variables are not supported")),
            _ if resource == "*" => Ok(resource),
            Some(name) if !name.is_empty() => Ok(name.to_owned()),
            _ => Err(format!("Resource {resource:?} is neither \"*\" nor {ARN_PREFIX}…")),
        };
        Ok(Self {
            allow: written.effect == Effect::Allow,
            actions: actions.iter().map(|action| action.to_ascii_lowercase()).collect(),
            resources: resources.into_iter().map(resource).collect::<Result<_, _>>()?,
        })
    }

    fn covers(&self, action: &str, resource: &str) -> bool {
        self.actions.iter().any(|pattern| matches(pattern, action))
            && self.resources.iter().any(|pattern| matches(pattern, resource))
    }
}

/// Whether a text fits a pattern in which `*` stands for any run of characters (slashes too) and `?` for exactly one. Linear in the
/// text for each star: no pattern makes it explode.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Some(&c) if c == '?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match retry {
                Some((after_star, from)) => {
                    retry = Some((after_star, from + 1));
                    (p, t) = (after_star, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn document(statements: &str) -> Result<PolicyDocument, PolicyError> {
        PolicyDocument::parse(format!(r#"{{"Version":"2012-10-17","Statement":{statements}}}"#).as_bytes())
    }

    fn arn(name: &str) -> String {
        format!("{ARN_PREFIX}{name}")
    }

    #[test]
    fn a_deny_wins_over_every_allow_and_silence_is_a_deny() {
        let document = document(
            r#"[{"Effect":"Allow","Action":["s3:GetObject","s3:put*"],"Resource":"arn:aws:s3:::b/*"},
                {"Sid":"keep","Effect":"Deny","Action":"s3:*","Resource":["arn:aws:s3:::b/secret/*"]}]"#,
        )
        .unwrap();
        assert!(document.allows("s3:GetObject", &arn("b/a/b")));
        assert!(document.allows("s3:PutObject", &arn("b/a")));
        assert!(!document.allows("s3:DeleteObject", &arn("b/a")));
        assert!(!document.allows("s3:GetObject", &arn("b/secret/x")));
        assert!(!document.allows("s3:GetObject", &arn("bb/a")));
        assert!(!document.allows("s3:GetObject", &arn("b")));
    }

    #[test]
    fn a_deny_alone_allows_nothing() {
        // C47
        let document = document(r#"{"Effect":"Deny","Action":"s3:DeleteObject","Resource":"*"}"#).unwrap();
        assert!(!document.allows("s3:GetObject", &arn("b/a")));
    }

    #[test]
    fn a_prefix_ends_where_it_says() {
        // C39
        let document =
            document(r#"{"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/alice/*"}"#).unwrap();
        assert!(document.allows("s3:GetObject", &arn("b/alice/x")));
        assert!(!document.allows("s3:GetObject", &arn("b/alice-private/x")));
        assert!(!document.allows("s3:GetObject", &arn("b/ALICE/x")), "keys are case-sensitive");
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        // C46
        let good = r#"{"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}"#;
        assert!(document(good).is_ok());
        for (statement, complaint) in [
            (
                good.replace("}", r#","Condition":{"Bool":{"aws:SecureTransport":"true"}}}"#),
                "Condition is not supported",
            ),
            (good.replace("Action", "NotAction"), "NotAction is not supported"),
            (good.replace("Resource", "NotResource"), "NotResource is not supported"),
            (good.replace("}", r#","Principal":"*"}"#), "Principal is not supported"),
            (good.replace("}", r#","Conditions":{}}"#), "unknown field `Conditions`"),
            (good.replace("Allow", "allow"), "unknown variant `allow`"),
            (good.replace("s3:GetObject", "ec2:*"), "not one of s3:*"),
            (good.replace("\"*\"", "\"arn:aws:sqs:::q\""), "neither"),
            (good.replace("\"*\"", "\"arn:aws:s3:::\""), "neither"),
            (good.replace("\"*\"", "\"arn:aws:s3:::b/${aws:username}/*\""), "variables"),
            (good.replace("\"*\"", "[]"), "both needed"),
            (r#"{"Effect":"Allow","Action":"s3:*"}"#.into(), "both needed"),
        ] {
            let error = document(&statement).unwrap_err().to_string();
            assert!(error.contains(complaint), "{statement} gives {error:?}");
        }
        for text in [
            "",
            "[]",
            "{}",
            r#"{"Version":"2008-10-17","Statement":[]}"#,
            r#"{"Version":"2012-10-17","Statement":[],"X":1}"#,
        ] {
            assert!(PolicyDocument::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn built_in_policies_cover_what_they_say() {
        assert!(Policy::ReadOnly.allows("s3:ListBucket", &arn("b")));
        assert!(!Policy::ReadOnly.allows("s3:PutObject", &arn("b/a")));
        assert!(!Policy::ReadOnly.allows("s3:DeleteObject", &arn("b/a")));
        assert!(Policy::ReadWrite.allows("s3:DeleteBucket", &arn("b")));
        assert!(!Policy::ReadWrite.allows("deltaweir:Settle", "*"));
        assert!(Policy::Admin.allows("deltaweir:Settle", "*"));
    }

    #[test]
    fn stars_and_question_marks_match_what_they_stand_for() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*", "a", true),
            ("*a", "ba", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b", "ab/a", false),
            ("?", "é", true),
            ("a**b", "ab", true),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern:?} {text:?}");
        }
        assert!(!matches(&"*a".repeat(40), &"a".repeat(39)));
        assert!(!matches(&("*a".repeat(200) + "b"), &"a".repeat(5000)), "and it ends soon");
    }

    proptest! {
        #[test]
        fn a_text_matches_itself_and_any_pattern_made_by_starring_a_part_of_it(text in "[a-c/é]{0,12}", from in 0_usize..13, len in 0_usize..13) {
            prop_assert!(matches(&text, &text));
            let chars: Vec<char> = text.chars().collect();
            let from = from.min(chars.len());
            let to = (from + len).min(chars.len());
            let starred: String = chars[..from].iter().chain(&['*']).chain(&chars[to..]).collect();
            prop_assert!(matches(&starred, &text));
        }

        #[test]
        fn no_document_makes_the_parser_panic(json in any::<Vec<u8>>()) {
            let _ = PolicyDocument::parse(&json);
        }
    }
}
