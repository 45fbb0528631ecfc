use super::*;
use crate::auth::{UserConfig, accounts::seed::seed};

const ALLOWS_A: &str = r#"{"Statement":{"Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::a/*"}}"#;

fn key(id: &str) -> NewKey {
    NewKey { id: id.into(), secret: SecretKey::new(format!("secret of {id}")) }
}

fn with_ann() -> Directory {
    let mut directory = Directory::default();
    let new = NewUser { policies: BTreeSet::from(["readonly".into()]), ..NewUser::default() };
    directory.add_user("ann", new, Some(key("AKANN")), 1).unwrap();
    directory
}

fn from_file(name: &str, id: &str, policy: Policy) -> UserConfig {
    UserConfig {
        name: name.into(),
        canonical_id: None,
        email: None,
        credentials: Credentials { access_key_id: id.into(), secret: key(id).secret },
        policy,
    }
}

fn keys_of(directory: &Directory, name: &str) -> Vec<String> {
    let accounts = directory.accounts();
    let account = accounts.into_iter().find(|account| account.name == name);
    account.into_iter().flat_map(|account| account.keys).map(|pair| pair.access_key_id).collect()
}

#[test]
fn a_user_signs_with_each_of_its_keys_that_is_enabled() {
    let mut directory = with_ann();
    directory.add_key("ann", key("AKMORE"), 2).unwrap();
    assert_eq!(keys_of(&directory, "ann"), ["AKANN", "AKMORE"]);
    directory.enable_key("ann", "AKANN", false).unwrap();
    assert_eq!(keys_of(&directory, "ann"), ["AKMORE"]);
    directory.enable_user("ann", false).unwrap();
    assert_eq!(keys_of(&directory, "ann"), [""; 0]);
    directory.enable_user("ann", true).unwrap();
    directory.remove_key("ann", "AKMORE").unwrap();
    assert_eq!(keys_of(&directory, "ann"), [""; 0]);
}

#[test]
fn an_access_key_is_one_users() {
    let mut directory = with_ann();
    directory.add_user("bob", NewUser::default(), None, 1).unwrap();
    assert!(matches!(directory.add_key("bob", key("AKANN"), 1), Err(Refusal::Conflict(_))));
    assert!(matches!(directory.remove_key("bob", "AKANN"), Err(Refusal::NotFound(_))));
    assert!(matches!(directory.enable_key("bob", "AKANN", false), Err(Refusal::NotFound(_))));
}

#[test]
fn rights_are_those_of_the_user_and_its_groups() {
    let mut directory = with_ann();
    let admin = |directory: &Directory| directory.accounts()[0].rights.admin;
    directory.add_group("operators").unwrap();
    directory.attach_policy("admin", Holder::Group("operators"), true).unwrap();
    assert!(!admin(&directory));
    directory.set_member("operators", "ann", true).unwrap();
    assert!(admin(&directory));
    assert!(matches!(directory.remove_group("operators"), Err(Refusal::Conflict(_))));
    directory.set_member("operators", "ann", false).unwrap();
    assert!(!admin(&directory));
    directory.remove_group("operators").unwrap();
}

#[test]
fn a_policy_that_somebody_has_is_not_removed() {
    let mut directory = with_ann();
    assert!(matches!(directory.put_policy("a", "{}"), Err(Refusal::Invalid(_))));
    assert!(matches!(directory.put_policy("admin", ALLOWS_A), Err(Refusal::Conflict(_))));
    directory.put_policy("a", ALLOWS_A).unwrap();
    directory.attach_policy("a", Holder::User("ann"), true).unwrap();
    assert!(matches!(directory.remove_policy("a"), Err(Refusal::Conflict(_))));
    directory.attach_policy("a", Holder::User("ann"), false).unwrap();
    directory.remove_policy("a").unwrap();
    assert!(matches!(directory.attach_policy("a", Holder::User("ann"), true), Err(Refusal::NotFound(_))));
}

#[test]
fn a_user_whose_policy_is_missing_signs_nothing() {
    let mut directory = with_ann();
    directory.users.get_mut("ann").unwrap().policies.insert("gone".into());
    assert_eq!(keys_of(&directory, "ann"), [""; 0]);
}

#[test]
fn what_was_not_made_for_it_is_refused() {
    let mut directory = with_ann();
    for name in ["", "root", "anonymous", "ann", "a/b", "a b", "é", &"a".repeat(65)] {
        assert!(directory.add_user(name, NewUser::default(), None, 1).is_err(), "{name:?}");
    }
    let short = NewKey { id: "AKSHORT".into(), secret: SecretKey::new("short") };
    assert!(directory.add_key("ann", short, 1).is_err());
    assert!(directory.add_key("nobody", key("AKNEW"), 1).is_err());
    for number in 1..KEYS_PER_USER_MAX {
        directory.add_key("ann", key(&format!("AK{number}")), 1).unwrap();
    }
    assert!(matches!(directory.add_key("ann", key("AKLAST"), 1), Err(Refusal::Conflict(_))));
}

#[test]
fn the_file_brings_whom_the_catalog_lacks_and_nobody_back() {
    let mut directory = Directory::default();
    let policy = Policy::Document(Arc::new(Written::parse(ALLOWS_A).unwrap()));
    let file = [from_file("ann", "AKANN", policy), from_file("bob", "AKBOB", Policy::ReadOnly)];
    assert_eq!(seed(&mut directory, &file, 1), [""; 0]);
    let seeded = directory.clone();
    assert_eq!(seed(&mut directory, &file, 2), [""; 0], "the second time it is all there");
    let write = directory.difference(&seeded, &BTreeSet::new(), &BTreeSet::new()).unwrap();
    assert!(write.creates.is_empty() && write.replaces.is_empty() && write.removes.is_empty());
    directory.remove_user("ann").unwrap();
    assert!(!directory.policies.contains_key("file:ann") && !directory.keys.contains_key("AKANN"));
    let warnings = seed(&mut directory, &file, 3);
    assert!(warnings.len() == 1 && warnings[0].contains("was removed"), "{warnings:?}");
    assert_eq!(directory.user_names().collect::<Vec<_>>(), ["bob"]);
    directory.add_user("ann", NewUser::default(), None, 4).unwrap();
    assert_eq!(directory.user_names().collect::<Vec<_>>(), ["ann", "bob"]);
}

#[test]
fn where_file_and_catalog_differ_the_catalog_wins_and_says_so() {
    let mut directory = Directory::default();
    seed(&mut directory, &[from_file("ann", "AKANN", Policy::ReadOnly)], 1);
    let before = directory.clone();
    let mut changed = from_file("ann", "AKANN", Policy::Admin);
    changed.credentials.secret = SecretKey::new("another secret");
    let warnings = seed(&mut directory, &[changed, from_file("eve", "AKANN", Policy::Admin)], 2);
    assert!(warnings[0].contains("policy, access key") && warnings[1].contains("is not added"), "{warnings:?}");
    assert!(directory.users == before.users && directory.keys == before.keys);
}

#[test]
fn what_is_written_is_read_again_and_written_once() {
    let mut directory = with_ann();
    directory.add_group("g").unwrap();
    directory.put_policy("p", ALLOWS_A).unwrap();
    let none = BTreeSet::new();
    let write = directory.difference(&Directory::default(), &none, &none).unwrap();
    assert_eq!((write.creates.len(), write.replaces.len(), write.removes.len()), (4, 0, 0));
    let again = Directory::read(write.creates).unwrap();
    assert_eq!(again.users_json(), directory.users_json());
    assert!(again.keys == directory.keys && again.groups == directory.groups && again.policies == directory.policies);
    directory.remove_user("ann").unwrap();
    let write = directory.difference(&again, &none, &none).unwrap();
    assert_eq!((write.creates.len(), write.replaces.len(), write.removes.len()), (0, 0, 2));
    let ann = AccountName { kind: AccountKind::User, name: "ann".into() };
    let outdated = BTreeSet::from([ann]);
    let write = again.difference(&again, &outdated, &none).unwrap();
    assert_eq!((write.creates.len(), write.replaces.len()), (0, 1), "sealed anew");
    let write = again.difference(&Directory::default(), &outdated, &outdated).unwrap();
    assert_eq!((write.creates.len(), write.replaces.len()), (3, 1), "a row that nobody can open is there all the same");
}

#[test]
fn a_document_with_a_member_that_is_not_known_is_refused() {
    let name = AccountName { kind: AccountKind::Group, name: "g".into() };
    let document = Zeroizing::new(br#"{"policies":[],"forbids":["s3:*"]}"#.to_vec());
    assert!(Directory::read(vec![AccountRecord { name, document }]).is_err());
}

#[test]
fn a_secret_does_not_show_itself() {
    // C116
    let shown = format!("{:?}", with_ann());
    assert!(shown.contains("AKANN") && !shown.contains("secret of AKANN"), "{shown}");
}
