use super::*;
use crate::{acl::Canned, context::NoContext};
use proptest::prelude::*;

const US: &str = "111111111111";
const THEM: &str = "222222222222";

fn caller(account: &str, user: &str) -> Caller {
    let id = account.repeat(6)[..64].to_owned();
    Caller {
        account: account.into(),
        canonical_id: id,
        own_id: format!("id of {user}"),
        user: Some(user.into()),
        role: None,
    }
}

fn owner(account: &'static str) -> ResourceOwner<'static> {
    ResourceOwner { account, id: account }
}

fn identity(statement: &str) -> Document {
    Document::identity(format!(r#"{{"Version":"2012-10-17","Statement":[{statement}]}}"#).as_bytes()).unwrap()
}

fn policy(statements: &[(&str, &str, &str)]) -> Document {
    let written: Vec<_> = statements
        .iter()
        .map(|(effect, principal, action)| {
            format!(
                r#"{{"Effect":"{effect}","Principal":{principal},"Action":"{action}","Resource":["arn:aws:s3:::b","arn:aws:s3:::b/*"]}}"#
            )
        })
        .collect();
    Document::of_bucket(format!(r#"{{"Statement":[{}]}}"#, written.join(",")).as_bytes(), "b").unwrap()
}

fn everything() -> Document {
    identity(r#"{"Effect":"Allow","Action":"s3:*","Resource":"*"}"#)
}

/// A bucket of ours, and how it is asked.
#[derive(Clone, Debug, Default)]
struct Case {
    identity: Option<Document>,
    session: Option<Document>,
    admin: bool,
    policy: Option<Document>,
    acl: Option<Acl>,
    object: Option<(&'static str, Option<Acl>)>,
    enforced: bool,
    block: PublicAccessBlock,
}

impl Case {
    fn decide(&self, caller: Option<&Caller>, action: &str) -> (bool, String) {
        let identity = Identity { admin: self.admin, policy: self.identity.as_ref(), session: self.session.as_ref() };
        let bucket = OfBucket {
            owner: owner(US),
            policy: self.policy.as_ref(),
            acl: self.acl.as_ref(),
            acls_count: !self.enforced,
            block: self.block,
        };
        let object = self.object.as_ref().map(|(account, acl)| OfObject { owner: owner(account), acl: acl.as_ref() });
        let resource = match scope_of(action) {
            Some(Scope::Object) => "arn:aws:s3:::b/k",
            _ => "arn:aws:s3:::b",
        };
        let context = &NoContext;
        let question = Question { caller, identity, action, resource, context, bucket: Some(bucket), object };
        let decision = decide(&question);
        (decision.allowed, decision.reason.to_string())
    }

    fn may(&self, caller: Option<&Caller>, action: &str) -> bool {
        self.decide(caller, action).0
    }

    /// Whether it may read this key, and whether it is sure to read all keys that begin with it.
    fn reads(&self, caller: Option<&Caller>, key: &str) -> (bool, bool) {
        let identity = Identity { admin: self.admin, policy: self.identity.as_ref(), session: self.session.as_ref() };
        let bucket = OfBucket {
            owner: owner(US),
            policy: self.policy.as_ref(),
            acl: None,
            acls_count: false,
            block: self.block,
        };
        let resource = format!("arn:aws:s3:::b/{key}");
        let (resource, context) = (resource.as_str(), &NoContext);
        let action = "s3:GetObject";
        let question = Question { caller, identity, action, resource, context, bucket: Some(bucket), object: None };
        (decide(&question).allowed, allows_all_below(&question))
    }
}

#[test]
fn within_an_account_either_policy_is_enough() {
    let ann = caller(US, "ann");
    let by_name = policy(&[("Allow", &format!(r#"{{"AWS":"{}"}}"#, ann.arn()), "s3:GetObject")]);
    let by_account = policy(&[("Allow", &format!(r#"{{"AWS":"{US}"}}"#), "s3:GetObject")]);
    let get = |case: Case| case.decide(Some(&ann), "s3:GetObject");
    assert_eq!(get(Case::default()), (false, "no statement and no grant allows it".into()));
    assert_eq!(
        get(Case { identity: Some(everything()), ..Case::default() }),
        (true, "statement 0 of the user's policy allows it".into())
    );
    assert_eq!(
        get(Case { policy: Some(by_name), ..Case::default() }),
        (true, "statement 0 of the bucket policy allows it".into())
    );
    assert!(!get(Case { policy: Some(by_account), ..Case::default() }).0, "the account has yet to pass it on");
}

#[test]
fn between_accounts_both_sides_must_allow() {
    let eve = caller(THEM, "eve");
    let open = policy(&[("Allow", &format!(r#"{{"AWS":"{THEM}"}}"#), "s3:GetObject")]);
    let both = Case { identity: Some(everything()), policy: Some(open), ..Case::default() };
    assert!(both.may(Some(&eve), "s3:GetObject") && !both.may(Some(&eve), "s3:PutObject"));
    let without_identity = Case { identity: None, ..both.clone() }.decide(Some(&eve), "s3:GetObject");
    assert_eq!(without_identity, (false, "the bucket's side allows it, but the user's own policy does not".into()));
    let (allowed, why) = Case { policy: None, ..both }.decide(Some(&eve), "s3:GetObject");
    assert!(!allowed && why.contains("another account's"), "{why}");
}

#[test]
fn a_deny_wins_whoever_says_it() {
    let ann = caller(US, "ann");
    let denied = policy(&[("Allow", r#""*""#, "s3:*"), ("Deny", r#""*""#, "s3:PutObject")]);
    let case = Case { identity: Some(everything()), policy: Some(denied), acl: None, ..Case::default() };
    assert!(case.may(Some(&ann), "s3:GetObject"));
    assert_eq!(case.decide(Some(&ann), "s3:PutObject"), (false, "statement 1 of the bucket policy denies it".into()));
    let admin = Case { admin: true, ..case.clone() };
    assert!(!admin.may(Some(&ann), "s3:PutObject") && admin.may(Some(&ann), "s3:GetBucketTagging"));
    let by_identity = identity(r#"{"Sid":"no","Effect":"Deny","Action":"s3:GetObject","Resource":"*"}"#);
    assert_eq!(
        Case { identity: Some(by_identity), ..case }.decide(Some(&ann), "s3:GetObject"),
        (false, "statement 0 (no) of the user's policy denies it".into())
    );
}

#[test]
fn an_administrator_can_repair_a_policy_that_locks_everybody_out() {
    let locked = policy(&[("Deny", r#""*""#, "s3:*")]);
    let root = caller(US, "root");
    let case = Case { admin: true, policy: Some(locked), ..Case::default() };
    for action in ["s3:GetBucketPolicy", "s3:PutBucketPolicy", "s3:DeleteBucketPolicy"] {
        assert!(case.may(Some(&root), action), "{action}");
    }
    assert!(!case.may(Some(&root), "s3:DeleteBucket"));
    assert!(!Case { admin: false, identity: Some(everything()), ..case }.may(Some(&root), "s3:PutBucketPolicy"));
}

#[test]
fn nobody_is_allowed_what_everybody_is() {
    let case = Case { policy: Some(policy(&[("Allow", r#""*""#, "s3:GetObject")])), ..Case::default() };
    assert!(case.may(None, "s3:GetObject") && !case.may(None, "s3:ListBucket") && !case.may(None, "s3:PutObject"));
    let listed = Case { acl: Some(Acl::canned(Canned::PublicRead, US, US)), ..Case::default() };
    assert!(
        listed.may(None, "s3:ListBucket") && !listed.may(None, "s3:PutObject") && !listed.may(None, "s3:GetObject")
    );
    let read = Case { object: Some((US, Some(Acl::canned(Canned::PublicRead, US, US)))), ..Case::default() };
    assert_eq!(
        read.decide(None, "s3:GetObject"),
        (true, "the object's ACL grants READ to http://acs.amazonaws.com/groups/global/AllUsers".into())
    );
    assert!(!Case { enforced: true, ..read }.may(None, "s3:GetObject"), "the bucket's owner owns everything");
}

#[test]
fn every_permission_gives_its_actions_and_no_others() {
    let eve = caller(THEM, "eve");
    let actions = [
        ("s3:ListBucket", Permission::Read),
        ("s3:ListBucketVersions", Permission::Read),
        ("s3:PutObject", Permission::Write),
        ("s3:GetBucketAcl", Permission::ReadAcp),
        ("s3:PutBucketAcl", Permission::WriteAcp),
    ];
    for granted in Permission::ALL {
        let grant = Grant { grantee: crate::Grantee::Id(eve.canonical_id.clone()), permission: granted };
        let case = Case { identity: Some(everything()), acl: Some(Acl::new(vec![grant])), ..Case::default() };
        for (action, needed) in actions {
            let expected = granted == needed || granted == Permission::FullControl;
            assert_eq!(case.may(Some(&eve), action), expected, "{granted:?} {action}");
        }
        assert!(!case.may(Some(&eve), "s3:DeleteBucket") && !case.may(Some(&eve), "s3:PutBucketPolicy"));
    }
}

#[test]
fn an_object_of_another_account_is_that_accounts_to_open() {
    let (ann, eve) = (caller(US, "ann"), caller(THEM, "eve"));
    let theirs = Case { identity: Some(everything()), object: Some((THEM, None)), ..Case::default() };
    assert!(!theirs.may(Some(&ann), "s3:GetObject") && theirs.may(Some(&ann), "s3:DeleteObject"));
    assert_eq!(theirs.decide(Some(&eve), "s3:GetObject"), (true, "the user's account owns the object".into()));
    let open = Case { policy: Some(policy(&[("Allow", r#""*""#, "s3:GetObject")])), ..theirs.clone() };
    assert!(!open.may(None, "s3:GetObject"), "a bucket's policy opens the bucket owner's objects alone");
    let granted = Acl::new(vec![Grant {
        grantee: crate::Grantee::Id(ann.canonical_id.clone()),
        permission: Permission::FullControl,
    }]);
    assert!(Case { object: Some((THEM, Some(granted))), ..theirs.clone() }.may(Some(&ann), "s3:GetObject"));
    assert!(Case { enforced: true, ..theirs }.may(Some(&ann), "s3:GetObject"));
}

#[test]
fn blocked_public_access_opens_nothing_to_others() {
    let (ann, eve) = (caller(US, "ann"), caller(THEM, "eve"));
    let statements = [("Allow", r#""*""#, "s3:GetObject"), ("Allow", r#"{"AWS":"222222222222"}"#, "s3:ListBucket")];
    let block = PublicAccessBlock { restrict_public_buckets: true, ..PublicAccessBlock::default() };
    let case = Case { policy: Some(policy(&statements)), identity: Some(everything()), block, ..Case::default() };
    assert!(!case.may(None, "s3:GetObject") && case.may(Some(&ann), "s3:GetObject"));
    assert!(!case.may(Some(&eve), "s3:ListBucket"), "not even what a statement of its own allows");
    let narrow = Case { policy: Some(policy(&statements[1..])), ..case };
    assert!(narrow.may(Some(&eve), "s3:ListBucket"), "that policy is not public");
    let block = PublicAccessBlock { ignore_public_acls: true, ..PublicAccessBlock::default() };
    let acl = Some(Acl::canned(Canned::PublicRead, US, US));
    assert!(!Case { acl, block, ..Case::default() }.may(None, "s3:ListBucket"));
}

#[test]
fn a_session_allows_no_more_than_its_policy() {
    let ann = caller(US, "ann");
    let session = identity(r#"{"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}"#);
    let case = Case { identity: Some(everything()), session: Some(session), ..Case::default() };
    assert!(case.may(Some(&ann), "s3:GetObject") && !case.may(Some(&ann), "s3:PutObject"));
    let admin = Case { admin: true, ..case };
    assert!(admin.may(Some(&ann), "s3:GetObject") && !admin.may(Some(&ann), "s3:PutObject"));
}

#[test]
fn who_reads_everything_below_a_prefix_is_told_from_who_reads_some_of_it() {
    let ann = caller(US, "ann");
    let own = |effect: &str, resource: &str, more: &str| {
        identity(&format!(
            r#"{{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::b/ann/*"}},
               {{"Effect":"{effect}","Action":"s3:Get*","Resource":"{resource}"{more}}}"#
        ))
    };
    let tagged = r#","Condition":{"StringEquals":{"s3:ExistingObjectTag/open":"yes"}}"#;
    let insecure = r#","Condition":{"Bool":{"aws:SecureTransport":"false"}}"#;
    for (document, whole, prefix) in [
        (own("Allow", "*", ""), true, true),
        (own("Allow", "arn:aws:s3:::b/*", ""), true, true),
        (own("Allow", "arn:aws:s3:::b/bob/*", ""), false, true),
        (own("Allow", "*", tagged), false, true),
        (own("Deny", "arn:aws:s3:::b/bob/*", ""), false, true),
        (own("Deny", "arn:aws:s3:::b/ann/secret", ""), false, false),
        (own("Deny", "*", tagged), false, false),
        (own("Deny", "*", insecure), false, true),
    ] {
        let case = Case { identity: Some(document.clone()), ..Case::default() };
        let found = ["", "ann/"].map(|below| case.reads(Some(&ann), below).1);
        assert_eq!(found, [whole, prefix], "{document:?}");
        assert!(
            !Case { session: Some(identity(r#"{"Effect":"Allow","Action":"s3:PutObject","Resource":"*"}"#)), ..case }
                .reads(Some(&ann), "ann/")
                .1
        );
    }
    let open = policy(&[("Allow", r#""*""#, "s3:GetObject")]);
    assert!(Case { policy: Some(open.clone()), ..Case::default() }.reads(None, "").1, "everybody reads it");
    assert!(!Case { policy: Some(open), ..Case::default() }.reads(Some(&caller(THEM, "eve")), "").1);
    assert!(Case { admin: true, ..Case::default() }.reads(Some(&ann), "").1);
    let denied = policy(&[("Deny", r#""*""#, "s3:GetObject")]);
    assert!(!Case { admin: true, policy: Some(denied), ..Case::default() }.reads(Some(&ann), "").1);
}

fn some_statement(principal: &'static str) -> impl Strategy<Value = String> {
    let resource = "arn:aws:s3:::b/(|[ab/*]{0,4})[*]?|[*]".prop_filter("a resource", |text| text != "arn:aws:s3:::b/");
    ("Allow|Deny", "Resource|NotResource", resource, "s3:GetObject|s3:\\*|s3:PutObject").prop_map(
        move |(effect, field, resource, action)| {
            format!(r#"{{"Effect":"{effect}",{principal}"Action":"{action}","{field}":"{resource}"}}"#)
        },
    )
}

proptest! {
    #[test]
    fn who_is_said_to_read_everything_below_reads_each_key(
        own in prop::collection::vec(some_statement(""), 1..4),
        of_bucket in prop::collection::vec(some_statement(r#""Principal":"*","#), 0..3),
        below in "[ab]{0,2}/?", rest in "[ab/]{0,4}", signed in any::<bool>(), ours in any::<bool>(),
    ) {
        let someone = caller(if ours { US } else { THEM }, "someone");
        let text = format!(r#"{{"Version":"2012-10-17","Statement":[{}]}}"#, of_bucket.join(","));
        let case = Case {
            identity: signed.then(|| identity(&own.join(","))),
            policy: Document::of_bucket(text.as_bytes(), "b").ok(),
            ..Case::default()
        };
        let caller = signed.then_some(&someone);
        let (_, all) = case.reads(caller, &below);
        let (this, _) = case.reads(caller, &format!("{below}{rest}"));
        prop_assert!(this || !all, "{case:?}");
    }

    #[test]
    fn a_deny_for_everybody_leaves_nothing_allowed(
        admin in any::<bool>(), with_identity in any::<bool>(), enforced in any::<bool>(), signed in any::<bool>(),
        ours in any::<bool>(), action in "s3:(GetObject|PutObject|ListBucket|DeleteObject|PutBucketAcl)",
    ) {
        let someone = caller(if ours { US } else { THEM }, "someone");
        let case = Case {
            admin: admin && signed,
            identity: (with_identity && signed).then(everything),
            policy: Some(policy(&[("Allow", r#""*""#, "s3:*"), ("Deny", r#""*""#, "s3:*")])),
            acl: Some(Acl::canned(Canned::PublicReadWrite, US, US)),
            object: Some((US, Some(Acl::canned(Canned::PublicRead, US, US)))),
            enforced,
            ..Case::default()
        };
        prop_assert!(!case.may(signed.then_some(&someone), &action));
    }

    #[test]
    fn nothing_is_allowed_where_nothing_says_so(
        signed in any::<bool>(), ours in any::<bool>(), action in "s3:(GetObject|PutObject|ListBucket|DeleteObject|GetBucketAcl)",
    ) {
        let someone = caller(if ours { US } else { THEM }, "someone");
        let case = Case { object: Some((US, None)), ..Case::default() };
        prop_assert!(!case.may(signed.then_some(&someone), &action));
    }
}
