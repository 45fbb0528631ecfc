use super::*;
use crate::context::MapContext;
use proptest::prelude::*;

fn identity(statements: &str) -> Result<Document, PolicyError> {
    Document::identity(format!(r#"{{"Version":"2012-10-17","Statement":{statements}}}"#).as_bytes())
}

fn of_bucket(statement: &str) -> Result<Document, PolicyError> {
    Document::of_bucket(format!(r#"{{"Version":"2012-10-17","Statement":{statement}}}"#).as_bytes(), "b")
}

fn allows(document: &Document, action: &str, resource: &str) -> bool {
    let resource = format!("{ARN_PREFIX}{resource}");
    matches!(document.evaluate(None, action, &resource, &NoContext), Finding::Allow { .. })
}

#[test]
fn a_deny_wins_over_every_allow_and_silence_allows_nothing() {
    let document = identity(
        r#"[{"Effect":"Allow","Action":["s3:GetObject","s3:put*"],"Resource":"arn:aws:s3:::b/*"},
            {"Sid":"keep","Effect":"Deny","Action":"s3:*","Resource":["arn:aws:s3:::b/secret/*"]}]"#,
    )
    .unwrap();
    assert!(allows(&document, "s3:GetObject", "b/a/b") && allows(&document, "s3:PutObject", "b/a"));
    assert!(!allows(&document, "s3:DeleteObject", "b/a") && !allows(&document, "s3:GetObject", "bb/a"));
    assert!(!allows(&document, "s3:GetObject", "b"));
    let denied = document.evaluate(None, "s3:GetObject", "arn:aws:s3:::b/secret/x", &NoContext);
    assert!(matches!(denied, Finding::Deny(1, statement) if statement.sid() == Some("keep")));
}

#[test]
fn a_deny_alone_allows_nothing() {
    // C47
    let document = identity(r#"{"Effect":"Deny","Action":"s3:DeleteObject","Resource":"*"}"#).unwrap();
    assert!(!allows(&document, "s3:GetObject", "b/a"));
}

#[test]
fn a_prefix_ends_where_it_says() {
    // C39
    let document =
        identity(r#"{"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/alice/*"}"#).unwrap();
    assert!(allows(&document, "s3:GetObject", "b/alice/x"));
    assert!(!allows(&document, "s3:GetObject", "b/alice-private/x"));
    assert!(!allows(&document, "s3:GetObject", "b/ALICE/x"), "keys are case-sensitive");
}

#[test]
fn not_action_and_not_resource_mean_all_but_these() {
    let document = identity(
        r#"[{"Effect":"Allow","NotAction":"s3:Delete*","Resource":"*"},
            {"Effect":"Deny","Action":"s3:PutObject","NotResource":"arn:aws:s3:::b/in/*"}]"#,
    )
    .unwrap();
    assert!(allows(&document, "s3:GetObject", "b/k") && !allows(&document, "s3:DeleteObject", "b/k"));
    assert!(allows(&document, "s3:PutObject", "b/in/k") && !allows(&document, "s3:PutObject", "b/out/k"));
}

#[test]
fn variables_make_a_home_for_every_user() {
    let document =
        identity(r#"{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::b/home/${aws:username}/*"}"#).unwrap();
    let context = MapContext::from_iter([("aws:username", "ann")]);
    let found = |key: &str| document.evaluate(None, "s3:GetObject", &format!("{ARN_PREFIX}b/home/{key}"), &context);
    assert!(matches!(found("ann/x"), Finding::Allow { .. }));
    assert_eq!(found("bob/x"), Finding::Nothing);
    assert!(!document.asks_for_the_object());
}

#[test]
fn what_a_bucket_policy_may_not_say_is_refused_in_s3s_words() {
    // C46
    let good = r#"{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/*"}"#;
    assert!(of_bucket(good).is_ok());
    for (wrong, message) in [
        (good.replace(r#""Effect":"Allow","#, ""), "Missing required field Effect"),
        (good.replace(r#""Principal":"*","#, ""), "Missing required field Principal"),
        (good.replace(r#""Action":"s3:GetObject","#, ""), "Missing required field Action"),
        (good.replace(r#","Resource":"arn:aws:s3:::b/*""#, ""), "Missing required field Resource"),
        (good.replace("Allow", "allow"), "Invalid effect: allow"),
        (good.replace("\"*\"", "\"ann\""), "Invalid principal in policy"),
        (good.replace("GetObject", "GetObjects"), "Policy has invalid action"),
        (good.replace("s3:GetObject", "ec2:*"), "Policy has invalid action"),
        (good.replace(":::b", ":::other"), "Policy has invalid resource"),
        (good.replace("arn:aws:s3:::b/*", "b/*"), "Policy has invalid resource"),
        (good.replace("arn:aws:s3:::b/*", "arn:aws:s3:::b/${nobody}"), "Policy has invalid resource"),
        (good.replace("b/*", "b"), "Action does not apply to any resource(s) in statement"),
        (good.replace("GetObject", "ListBucket"), "Action does not apply to any resource(s) in statement"),
        (good.replace("Effect", "Efect"), "Unknown field Efect"),
        (good.replace("\"Action\":", "\"NotAction\":\"s3:PutObject\",\"Action\":"), "both Action and NotAction"),
        (good.replace("\"s3:GetObject\"", "[]"), "Missing required field Action"),
        (good.replace("\"s3:GetObject\"", "7"), "Invalid policy syntax."),
        (good.replace('}', r#","Condition":{"Bool":{"aws:Secure":"true"}}}"#), "Policy has an invalid condition key"),
        (good.replace('}', r#","Condition":{"Is":{"aws:SecureTransport":"true"}}}"#), "Invalid Condition type : Is"),
        (r#""x""#.into(), "Invalid policy syntax."),
        ("[]".into(), "Statement is empty"),
        (
            format!("[{},{}]", good.replace('{', r#"{"Sid":"s","#), good.replace('{', r#"{"Sid":"s","#)),
            "must be unique",
        ),
    ] {
        let error = of_bucket(&wrong).unwrap_err().to_string();
        assert!(error.contains(message), "{wrong} gives {error:?}");
    }
}

#[test]
fn what_is_no_policy_is_refused() {
    for (text, message) in [
        ("", "first byte must be '{'"),
        (" {}", "first byte must be '{'"),
        ("[]", "must be valid JSON"),
        ("{", "contains invalid Json"),
        ("{}", "Missing required field Statement"),
        (r#"{"Version":"2011-01-01","Statement":[]}"#, "valid version string"),
        (r#"{"Version":"2012-10-17","Statement":[],"X":1}"#, "Unknown field X"),
    ] {
        let error = Document::of_bucket(text.as_bytes(), "b").unwrap_err().to_string();
        assert!(error.contains(message), "{text} gives {error:?}");
    }
    assert!(Document::of_bucket(&[b'{'; BUCKET_POLICY_BYTES_MAX + 1], "b").unwrap_err().message().contains("20 KB"));
    let with_principal = r#"{"Effect":"Allow","Principal":"*","Action":"s3:*","Resource":"*"}"#;
    assert!(identity(with_principal).unwrap_err().message().contains("principal"));
}

#[test]
fn resources_may_leave_region_and_account_open() {
    let document = of_bucket(
        r#"{"Effect":"Allow","Principal":"*","Action":"s3:ListBucket","Resource":["arn:aws:s3::*:b","arn:aws:s3::*:b/*"]}"#,
    );
    assert!(allows(&document.unwrap(), "s3:ListBucket", "b"));
}

#[test]
fn a_statement_that_names_the_caller_counts_more_than_one_that_names_its_account() {
    let caller = Caller {
        account: "1".repeat(12),
        canonical_id: "a".repeat(64),
        own_id: "a".repeat(64),
        user: Some("ann".into()),
        role: None,
    };
    let statement = |principal: &str| {
        format!(
            r#"{{"Effect":"Allow","Principal":{{"AWS":"{principal}"}},"Action":"s3:GetObject","Resource":"arn:aws:s3:::b/*"}}"#
        )
    };
    let directly = |principals: &[&str]| {
        let statements: Vec<_> = principals.iter().map(|principal| statement(principal)).collect();
        let document = of_bucket(&format!("[{}]", statements.join(","))).unwrap();
        match document.evaluate(Some(&caller), "s3:GetObject", "arn:aws:s3:::b/k", &NoContext) {
            Finding::Allow { index, directly, .. } => Some((index, directly)),
            _ => None,
        }
    };
    assert_eq!(directly(&["111111111111"]), Some((0, false)));
    assert_eq!(directly(&["111111111111", "arn:aws:iam::111111111111:user/ann"]), Some((1, true)));
    assert_eq!(directly(&["*", "111111111111"]), Some((0, true)));
    assert_eq!(directly(&["222222222222"]), None);
}

#[test]
fn a_policy_says_whether_it_must_see_the_object() {
    let document = of_bucket(
        r#"{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/*",
            "Condition":{"StringEquals":{"s3:ExistingObjectTag/security":"public"}}}"#,
    );
    assert!(document.unwrap().asks_for_the_object());
}

proptest! {
    #[test]
    fn no_document_makes_the_parser_panic(json in any::<Vec<u8>>()) {
        let _ = Document::identity(&json);
        let _ = Document::of_bucket(&json, "b");
    }

    #[test]
    fn no_statement_makes_the_parser_panic_and_what_it_takes_can_be_evaluated(
        fields in proptest::collection::vec(
            ("Effect|Principal|Action|NotAction|Resource|NotResource|Condition|Sid", "\"Allow\"|\"Deny\"|\"\\*\"|\"s3:[*A-Z?]{0,5}\"|\"arn:aws:s3:::b/[$*{}?a-z:]{0,9}\"|\\{\"AWS\":\"\\*\"\\}|\\{\\}|[0-9]|\\{\"StringLike\":\\{\"s3:prefix\":\"[*a]{0,3}\"\\}\\}"),
            0..7,
        ),
        resource in "arn:aws:s3:::b/[a-z:$]{0,9}",
    ) {
        let fields: Vec<_> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        let statement = format!("{{{}}}", fields.join(","));
        for document in [identity(&statement), of_bucket(&statement)].into_iter().flatten() {
            let _ = document.evaluate(None, "s3:GetObject", &resource, &NoContext);
            let _ = document.is_public();
        }
    }

    #[test]
    fn adding_a_deny_never_allows_more(action in "s3:(GetObject|PutObject|ListBucket)", key in "[a-c]{0,3}", deny in "[a-c*]{0,3}") {
        let allow = r#"{"Effect":"Allow","Action":["s3:GetObject","s3:PutObject"],"Resource":"arn:aws:s3:::b/a*"}"#;
        let denied = format!(r#"[{allow},{{"Effect":"Deny","Action":"s3:*","Resource":"arn:aws:s3:::b/{deny}"}}]"#);
        let (plain, with_deny) = (identity(allow).unwrap(), identity(&denied).unwrap());
        let resource = format!("b/{key}");
        prop_assert!(allows(&plain, &action, &resource) || !allows(&with_deny, &action, &resource));
    }
}
