use super::*;
use proptest::prelude::*;

#[test]
fn a_delete_is_read_exactly() {
    let document = r#"<?xml version="1.0" encoding="UTF-8"?>
        <!-- a comment --><Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
          <Quiet>true</Quiet>
          <Object><Key> a &amp; b&#10;&#xe9;/../<![CDATA[<x>]]></Key><VersionId>null</VersionId><ETag>"e"</ETag></Object>
          <Object><Unknown><Deep/></Unknown><Key/></Object>
        </Delete>"#;
    let delete = Delete::parse(document.as_bytes()).unwrap();
    assert!(delete.quiet);
    assert_eq!(
        delete.objects,
        [
            DeleteEntry {
                key: " a & b\né/../<x>".into(),
                version_id: Some("null".into()),
                conditions: WriteConditions { if_match: Some(ETag::from_wire("e")), ..WriteConditions::default() }
            },
            DeleteEntry::default(),
        ]
    );
}

#[test]
fn namespaces_and_prefixes_do_not_matter() {
    let document = r#"<s3:Delete xmlns:s3="http://s3.amazonaws.com/doc/2006-03-01/"><s3:Object><s3:Key>k</s3:Key></s3:Object></s3:Delete>"#;
    assert_eq!(Delete::parse(document.as_bytes()).unwrap().objects[0].key, "k");
}

#[test]
fn dangerous_and_broken_documents_are_refused() {
    // C70
    let laughs = format!(
        "<!DOCTYPE d [<!ENTITY a \"ha\">{}]><Delete><Object><Key>&b9;</Key></Object></Delete>",
        (0..10).map(|i| format!("<!ENTITY b{i} \"&a;&a;\">")).collect::<String>()
    );
    let deep = format!("{}{}", "<a>".repeat(10_000), "</a>".repeat(10_000)); // C71
    let deep_inside = format!("<Delete><Object><Key>k</Key></Object>{deep}</Delete>");
    let documents = [
        "",
        " ",
        "<",
        "text",
        "<Delete>",
        "<Delete></Other>",
        "<Delete/>",
        "<Delete><Object/></Delete>",
        "<Delete><Object><Key>a</Object></Delete>",
        "<Delete><Object><Key>a</Key><Key>b</Key></Object></Delete>",
        "<Delete><Object><Key><b/></Key></Object></Delete>",
        "<Delete><Quiet>maybe</Quiet><Object><Key>a</Key></Object></Delete>",
        "<Delete>text<Object><Key>a</Key></Object></Delete>",
        "<Delete><Object><Key>a</Key></Object></Delete><Delete/>",
        "<Delete><Object><Key>a</Key></Object></Delete>text",
        "<Other><Object><Key>a</Key></Object></Other>",
        "<Delete><Object><Key>&undeclared;</Key></Object></Delete>",
        "<Delete><Object><Key>&#x110000;</Key></Object></Delete>",
        "<Delete><Object><Key>&#xD800;</Key></Object></Delete>",
        "<Delete><Object><Key>a & b</Key></Object></Delete>",
        "<!DOCTYPE d SYSTEM \"file:///etc/passwd\"><Delete><Object><Key>a</Key></Object></Delete>",
        "<Delete><!DOCTYPE d><Object><Key>a</Key></Object></Delete>",
        &laughs,
        &deep,
        &deep_inside,
    ];
    for document in documents {
        let error = Delete::parse(document.as_bytes()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::MalformedXML, "{document:.80}");
    }
    assert_eq!(Delete::parse(b"<Delete>\xff</Delete>").unwrap_err().code(), ErrorCode::MalformedXML);
}

#[test]
fn many_attributes_and_namespaces_cost_no_more_than_their_bytes() {
    // C71
    let attributes: String = (0..100_000).map(|i| format!(" xmlns:n{i}=\"u\" a{i}=\"\"")).collect();
    let document = format!("<Delete{attributes}><Object><Key>k</Key></Object></Delete>");
    assert_eq!(Delete::parse(document.as_bytes()).unwrap().objects.len(), 1);
}

#[test]
fn a_delete_has_1_to_1000_objects() {
    // C72
    let document = |count: usize| format!("<Delete>{}</Delete>", "<Object><Key>k</Key></Object>".repeat(count));
    assert_eq!(Delete::parse(document(1000).as_bytes()).unwrap().objects.len(), 1000);
    assert_eq!(Delete::parse(document(1001).as_bytes()).unwrap_err().code(), ErrorCode::MalformedXML);
}

#[test]
fn the_conditions_of_a_deletion_are_read() {
    let document = "<Delete><Object><Key>k</Key><Size>1</Size></Object></Delete>";
    let deletion = Delete::parse(document.as_bytes()).unwrap();
    assert_eq!(deletion.objects[0].conditions.if_match_size, Some(1));
}

fn complete(parts: &str) -> Result<CompleteMultipartUpload> {
    CompleteMultipartUpload::parse(format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>").as_bytes())
}

fn part(number: impl std::fmt::Display) -> String {
    format!("<Part><PartNumber>{number}</PartNumber><ETag>&quot;e&quot;</ETag></Part>")
}

#[test]
fn a_complete_is_read_with_its_checksums() {
    let parts = complete(
        "<Part><ETag>\"e1\"</ETag><PartNumber>1</PartNumber><ChecksumCRC32>AAAAAA==</ChecksumCRC32></Part>\
         <Part><PartNumber> 3 </PartNumber><ETag>e3</ETag></Part>",
    )
    .unwrap()
    .parts;
    assert_eq!(parts.len(), 2);
    assert_eq!((parts[0].number, parts[0].etag.as_str()), (1, "e1"));
    assert_eq!(parts[0].checksum.unwrap().to_wire(), "AAAAAA==");
    assert_eq!((parts[1].number, parts[1].checksum), (3, None));
}

#[test]
fn part_lists_out_of_order_or_out_of_range_are_refused() {
    // C84
    for (parts, code) in [
        (String::new(), ErrorCode::MalformedXML),
        (part(2) + &part(1), ErrorCode::InvalidPartOrder),
        (part(1) + &part(1), ErrorCode::InvalidPartOrder),
        (part(0), ErrorCode::InvalidArgument),
        (part(-1), ErrorCode::InvalidArgument),
        (part(10_001), ErrorCode::InvalidArgument),
        (part(4_294_967_297u64), ErrorCode::InvalidArgument),
        (part("x"), ErrorCode::InvalidArgument),
        ("<Part><PartNumber>1</PartNumber></Part>".into(), ErrorCode::MalformedXML),
        ("<Part><ETag>e</ETag></Part>".into(), ErrorCode::MalformedXML),
        (
            "<Part><PartNumber>1</PartNumber><ETag>e</ETag><ChecksumCRC32>?</ChecksumCRC32></Part>".into(),
            ErrorCode::InvalidArgument,
        ),
    ] {
        assert_eq!(complete(&parts).unwrap_err().code(), code, "{parts}");
    }
}

#[test]
fn a_complete_has_at_most_10000_parts() {
    // C72
    let parts = |count: u32| (1..=count).map(|n| part(n.min(10_000))).collect::<String>();
    assert_eq!(complete(&parts(10_000)).unwrap().parts.len(), 10_000);
    assert_eq!(complete(&parts(10_001)).unwrap_err().code(), ErrorCode::MalformedXML);
}

#[test]
fn a_bucket_configuration_may_be_absent() {
    let parse = |text: &str| CreateBucketConfiguration::parse(text.as_bytes());
    assert_eq!(parse("").unwrap().location_constraint, None);
    assert_eq!(parse("<CreateBucketConfiguration/>").unwrap().location_constraint, None);
    let eu =
        "<CreateBucketConfiguration><LocationConstraint>eu-west-1</LocationConstraint></CreateBucketConfiguration>";
    assert_eq!(parse(eu).unwrap().location_constraint.as_deref(), Some("eu-west-1"));
    let directory = "<CreateBucketConfiguration><Location/></CreateBucketConfiguration>";
    assert_eq!(parse(directory).unwrap_err().code(), ErrorCode::NotImplemented);
    assert_eq!(parse("<X/>").unwrap_err().code(), ErrorCode::MalformedXML);
}

proptest! {
    #[test]
    fn every_key_survives_escaping(key in "[^\\p{Cc}]{1,200}") {
        let escaped = quick_xml::escape::escape(key.as_str());
        let document = format!("<Delete><Object><Key>{escaped}</Key></Object></Delete>");
        prop_assert_eq!(&Delete::parse(document.as_bytes()).unwrap().objects[0].key, &key);
    }

    #[test]
    fn arbitrary_documents_never_panic(pieces in proptest::collection::vec("<[/!?]?[A-Za-z]{0,8}[/?]?>|<Delete>|<Object>|<Key>|</Key>|</Object>|</Delete>|&[a-z#0-9x]{0,6};?|[ -~]{0,6}", 0..20)) {
        let document = pieces.concat();
        let _ = Delete::parse(document.as_bytes());
        let _ = CompleteMultipartUpload::parse(document.as_bytes());
        let _ = CreateBucketConfiguration::parse(document.as_bytes());
    }
}

#[test]
fn versioning_is_enabled_or_suspended_and_nothing_else() {
    let parse = |inside: &str| {
        VersioningRequest::parse(format!("<VersioningConfiguration>{inside}</VersioningConfiguration>").as_bytes())
    };
    let read = |inside: &str| parse(inside).map(|request| (request.enabled, request.mfa_delete)).unwrap();
    assert_eq!(read("<Status>Enabled</Status>"), (true, None));
    assert_eq!(read("<Status>Suspended</Status><MfaDelete>Disabled</MfaDelete>"), (false, Some(false)));
    assert_eq!(read("<MFADelete>Enabled</MFADelete><Status>Enabled</Status>"), (true, Some(true)));
    let refused = |inside: &str| parse(inside).unwrap_err().code();
    assert_eq!(refused(""), ErrorCode::IllegalVersioningConfigurationException);
    for inside in
        ["<Status>enabled</Status>", "<Status/>", "<Foo/>", "<Status>Enabled</Status><MfaDelete>On</MfaDelete>"]
    {
        assert_eq!(refused(inside), ErrorCode::MalformedXML, "{inside}");
    }
    assert_eq!(VersioningRequest::parse(b"").unwrap_err().code(), ErrorCode::MissingRequestBodyError);
}
