//! Reading the pages of ListObjectsV2
//! (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html>).

use super::PlainEntry;
use crate::cloud::refusal::{element, plain_text};

/// A page of a listing, keys as the store has them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) entries: Vec<PlainEntry>,
    /// What the next page is asked for with.
    pub(super) next: Option<String>,
}

/// Reads a page; `None` when it is none.
pub(super) fn parse(text: &str) -> Option<Page> {
    if !text.contains("<ListBucketResult") {
        return None;
    }
    let encoded = element(text, "EncodingType") == Some("url");
    let mut entries = Vec::new();
    for part in text.split("<Contents>").skip(1) {
        let part = part.split_once("</Contents>")?.0;
        let key = raw_element(part, "Key")?;
        let key = if encoded { decoded(&plain_text(key))? } else { plain_text(key) };
        let etag = element(part, "ETag").map(|etag| plain_text(etag).trim_matches('"').to_owned());
        entries.push(PlainEntry { key, len: element(part, "Size")?.parse().ok()?, etag });
    }
    let next = match element(text, "IsTruncated") {
        Some("true") => Some(plain_text(element(text, "NextContinuationToken")?)),
        _ => None,
    };
    Some(Page { entries, next })
}

/// As [`element`], with the spaces around the text: they belong to a key.
fn raw_element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(text, _)| text)
}

/// A key as `encoding-type=url` writes it: percent escapes, and `+` for a space.
fn decoded(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut key = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'+' => key.push(b' '),
            b'%' => {
                let digits = std::str::from_utf8(bytes.get(at + 1..at + 3)?).ok()?;
                key.push(u8::from_str_radix(digits, 16).ok()?);
                at += 2;
            }
            byte => key.push(byte),
        }
        at += 1;
    }
    String::from_utf8(key).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: &str = "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>\
        <EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><NextContinuationToken>t&amp;1=</NextContinuationToken>\
        <Contents><Key>a+b/%C3%A9%2B</Key><Size>7</Size><ETag>&quot;0123&quot;</ETag></Contents>\
        <Contents><Key>c//</Key><Size>0</Size></Contents></ListBucketResult>";

    #[test]
    fn a_page_is_read_with_its_successor() {
        let page = parse(PAGE).unwrap();
        let entry =
            |key: &str, len, etag: Option<&str>| PlainEntry { key: key.into(), len, etag: etag.map(str::to_owned) };
        assert_eq!(page.entries, [entry("a b/é+", 7, Some("0123")), entry("c//", 0, None)]);
        assert_eq!(page.next.as_deref(), Some("t&1="));
    }

    #[test]
    fn keys_that_are_not_encoded_keep_their_spaces_and_signs() {
        let page = PAGE.replace("<EncodingType>url</EncodingType>", "").replace("a+b/%C3%A9%2B", " a+&lt;%41 ");
        assert_eq!(parse(&page).unwrap().entries[0].key, " a+<%41 ");
    }

    #[test]
    fn what_is_no_listing_is_not_an_empty_one() {
        for text in ["", "<html></html>", "<Error><Code>AccessDenied</Code></Error>"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse(&PAGE.replace("<Size>7", "<Size>x")), None);
        assert_eq!(parse(&PAGE.replace("%C3%A9", "%C3")), None, "half a character");
        assert_eq!(parse(&PAGE.replace("NextContinuationToken", "Next")), None, "more, but not where");
    }

    proptest! {
        #[test]
        fn any_answer_can_be_read(cut in 0usize..600, noise in "\\PC{0,20}") {
            let cut = (0..=cut.min(PAGE.len())).rev().find(|at| PAGE.is_char_boundary(*at)).unwrap_or(0);
            let _ = parse(&format!("{}{noise}{}", &PAGE[..cut], &PAGE[cut..]));
        }

        #[test]
        fn any_key_is_read_as_it_was_written(key in "\\PC{1,30}") {
            let encoded: String = key.bytes().map(|byte| if byte == b' ' { "+".into() } else { format!("%{byte:02X}") }).collect();
            prop_assert_eq!(decoded(&encoded), Some(key));
        }
    }
}
