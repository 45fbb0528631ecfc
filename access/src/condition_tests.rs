use super::*;
use crate::context::MapContext;

/// Whether a condition block holds in a context.
fn holds(block: &str, context: &[(&str, &str)]) -> bool {
    let conditions = Condition::parse_all(&serde_json::from_str(block).unwrap(), true).unwrap();
    let context = MapContext::from_iter(context.iter().copied());
    conditions.iter().all(|condition| condition.holds(&context))
}

#[test]
fn every_operator_compares_as_it_says() {
    let ip = "aws:SourceIp";
    for (operator, key, wanted, fits, misfits) in [
        ("StringEquals", "s3:prefix", "a*", "a*", "ab"),
        ("StringNotEquals", "s3:prefix", "a", "b", "a"),
        ("StringEqualsIgnoreCase", "s3:prefix", "Ab", "aB", "b"),
        ("StringNotEqualsIgnoreCase", "s3:prefix", "Ab", "b", "aB"),
        ("StringLike", "s3:prefix", "a*c?", "abcd", "abc"),
        ("StringNotLike", "s3:prefix", "a*", "b", "abc"),
        ("BinaryEquals", "s3:prefix", "YQ==", "YQ==", "YR=="),
        ("NumericEquals", "s3:max-keys", "10", "10.0", "11"),
        ("NumericNotEquals", "s3:max-keys", "10", "11", "10"),
        ("NumericLessThan", "s3:max-keys", "10", "9", "10"),
        ("NumericLessThanEquals", "s3:max-keys", "10", "10", "11"),
        ("NumericGreaterThan", "s3:max-keys", "10", "11", "10"),
        ("NumericGreaterThanEquals", "s3:max-keys", "10", "10", "9"),
        ("DateEquals", "aws:CurrentTime", "2026-01-02T00:00:00Z", "2026-01-02", "2026-01-03"),
        ("DateNotEquals", "aws:CurrentTime", "2026-01-02T00:00:00Z", "2026-01-03", "2026-01-02T00:00:00Z"),
        ("DateLessThan", "aws:CurrentTime", "2026-01-02", "2026-01-01T23:59:59Z", "2026-01-02"),
        ("DateLessThanEquals", "aws:CurrentTime", "2026-01-02", "2026-01-02", "2026-01-02T00:00:01Z"),
        ("DateGreaterThan", "aws:EpochTime", "1000", "1001", "1000"),
        ("DateGreaterThanEquals", "aws:CurrentTime", "1970-01-01T00:16:40Z", "1000", "999"),
        ("Bool", "aws:SecureTransport", "true", "true", "false"),
        ("IpAddress", ip, "10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
        ("IpAddress", ip, "10.0.0.0/8", "::ffff:10.0.0.1", "::1"),
        ("IpAddress", ip, "2001:db8::/32", "2001:db8:1::1", "2001:db9::1"),
        ("IpAddress", ip, "192.0.2.1", "192.0.2.1", "192.0.2.2"),
        ("NotIpAddress", ip, "10.0.0.0/8", "11.0.0.1", "10.0.0.1"),
        ("ArnEquals", "aws:PrincipalArn", "arn:aws:iam::1:user/*", "arn:aws:iam::1:user/a", "arn:aws:iam::2:user/a"),
        ("ArnLike", "aws:PrincipalArn", "arn:aws:iam::*:user/a", "arn:aws:iam::1:user/a", "arn:aws:iam::1:role/a"),
        ("ArnNotEquals", "aws:PrincipalArn", "arn:aws:iam::1:user/a", "arn:aws:iam::1:user/b", "arn:aws:iam::1:user/a"),
        ("ArnNotLike", "aws:PrincipalArn", "arn:*:iam::1:*", "arn:aws:iam::2:user/b", "arn:aws:iam::1:user/a"),
    ] {
        let block = format!(r#"{{"{operator}":{{"{key}":"{wanted}"}}}}"#);
        assert!(holds(&block, &[(key, fits)]), "{block} and {fits}");
        assert!(!holds(&block, &[(key, misfits)]), "{block} and {misfits}");
        let negated = operator.contains("Not");
        assert_eq!(holds(&block, &[]), negated, "{block} without a value");
        let block = format!(r#"{{"{operator}IfExists":{{"{key}":"{wanted}"}}}}"#);
        assert!(holds(&block, &[]) && holds(&block, &[(key, fits)]) && !holds(&block, &[(key, misfits)]), "{block}");
    }
}

#[test]
fn one_of_several_values_is_enough_and_none_of_them_may_be_the_one_denied() {
    let any = r#"{"StringEquals":{"s3:prefix":["a","b"]}}"#;
    assert!(holds(any, &[("s3:prefix", "b")]) && !holds(any, &[("s3:prefix", "c")]));
    let none = r#"{"StringNotEquals":{"s3:prefix":["a","b"]}}"#;
    assert!(holds(none, &[("s3:prefix", "c")]) && !holds(none, &[("s3:prefix", "b")]));
}

#[test]
fn every_key_and_every_operator_must_hold() {
    let block = r#"{"StringLike":{"s3:prefix":"a*","s3:delimiter":"/"},"Bool":{"aws:SecureTransport":true}}"#;
    let whole = [("s3:prefix", "ab"), ("s3:delimiter", "/"), ("aws:SecureTransport", "true")];
    assert!(holds(block, &whole));
    for missing in 0..3 {
        let mut part = whole.to_vec();
        part.remove(missing);
        assert!(!holds(block, &part), "{missing}");
    }
}

#[test]
fn null_asks_whether_there_is_a_value() {
    let absent = r#"{"Null":{"s3:x-amz-server-side-encryption":"true"}}"#;
    assert!(holds(absent, &[]) && !holds(absent, &[("s3:x-amz-server-side-encryption", "AES256")]));
    let present = r#"{"Null":{"s3:x-amz-server-side-encryption":false}}"#;
    assert!(!holds(present, &[]) && holds(present, &[("s3:x-amz-server-side-encryption", "AES256")]));
}

#[test]
fn sets_are_compared_value_by_value() {
    let key = "s3:RequestObjectTagKeys";
    let all = r#"{"ForAllValues:StringEquals":{"s3:RequestObjectTagKeys":["a","b"]}}"#;
    assert!(holds(all, &[(key, "a"), (key, "b")]) && holds(all, &[]) && !holds(all, &[(key, "a"), (key, "c")]));
    let any = r#"{"ForAnyValue:StringLike":{"s3:RequestObjectTagKeys":["a*"]}}"#;
    assert!(holds(any, &[(key, "x"), (key, "ab")]) && !holds(any, &[]) && !holds(any, &[(key, "x")]));
    let none = r#"{"ForAllValues:StringNotEquals":{"s3:RequestObjectTagKeys":["secret"]}}"#;
    assert!(holds(none, &[(key, "a"), (key, "b")]) && !holds(none, &[(key, "a"), (key, "secret")]));
    let not_all = r#"{"ForAnyValue:StringNotEquals":{"s3:RequestObjectTagKeys":["a"]}}"#;
    assert!(holds(not_all, &[(key, "a"), (key, "b")]) && !holds(not_all, &[(key, "a")]));
}

#[test]
fn variables_stand_in_values() {
    let block = r#"{"StringLike":{"s3:prefix":"home/${aws:username}/*"}}"#;
    assert!(holds(block, &[("aws:username", "ann"), ("s3:prefix", "home/ann/x")]));
    assert!(!holds(block, &[("aws:username", "ann"), ("s3:prefix", "home/bob/x")]));
    assert!(!holds(block, &[("s3:prefix", "home//x")]), "and nobody has no name");
}

#[test]
fn what_is_no_condition_is_refused() {
    for (block, complaint) in [
        (r#"{"StringAlmost":{"s3:prefix":"a"}}"#, "Invalid Condition type : StringAlmost"),
        (r#"{"NullIfExists":{"s3:prefix":"true"}}"#, "Invalid Condition type"),
        (r#"{"ForSomeValues:StringEquals":{"s3:prefix":"a"}}"#, "Invalid Condition type"),
        (r#"{"StringEquals":{"s3:prefx":"a"}}"#, "invalid condition key"),
        (r#"{"NumericEquals":{"s3:max-keys":"ten"}}"#, "Invalid Condition value"),
        (r#"{"IpAddress":{"aws:SourceIp":"10.0.0.0/33"}}"#, "Invalid IP address in Conditions"),
        (r#"{"DateEquals":{"aws:CurrentTime":"soon"}}"#, "Invalid Condition value"),
        (r#"{"Bool":{"aws:SecureTransport":"maybe"}}"#, "Invalid Condition value"),
        (r#"{"StringEquals":{"s3:prefix":{}}}"#, "Invalid Condition value"),
        (r#"{"StringEquals":"a"}"#, "Invalid policy syntax"),
        (r#"[]"#, "Invalid policy syntax"),
    ] {
        let error = Condition::parse_all(&serde_json::from_str(block).unwrap(), true).unwrap_err();
        assert!(error.to_string().contains(complaint), "{block} gives {error}");
    }
}
