//! Uploads in parts that nobody will complete: found by listing, removed by age.
//!
//! `object_store` has no call for this, so the listing is asked for here
//! (<https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListMultipartUploads.html>).

use crate::{
    BackendError, BlobName, ErrorKind, IsNobodys, Result, UnfinishedUploads,
    cloud::refusal::{element, failure, plain_text},
    s3::requests::{Asked, S3Requests, encoded},
};
use async_trait::async_trait;
use object_store::{multipart::MultipartStore, path::Path};
use std::time::{Duration, SystemTime};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// A bucket as far as its unfinished uploads are concerned.
pub(super) struct S3Uploads {
    pub(super) requests: S3Requests,
    pub(super) prefix: String,
}

/// One unfinished upload.
#[derive(Debug, PartialEq, Eq)]
struct Upload {
    key: String,
    id: String,
    begun: SystemTime,
}

/// A page of a listing.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    uploads: Vec<Upload>,
    /// Where the next page starts: a key and an upload's id.
    next: Option<(String, String)>,
}

#[async_trait]
impl UnfinishedUploads for S3Uploads {
    async fn abort(&self, age_min: Duration, is_nobodys: IsNobodys<'_>) -> Result<u64> {
        let mut aborted = 0;
        let mut from = Some((String::new(), String::new()));
        while let Some(marker) = from {
            let page = self.page(&marker).await?;
            for upload in page.uploads.iter().filter(|upload| self.is_due(upload, age_min, is_nobodys)) {
                let path = Path::parse(&upload.key)
                    .map_err(|error| BackendError::with_source(ErrorKind::Other, "a listed key is no path", error))?;
                match self.requests.store.abort_multipart(&path, &upload.id).await {
                    Ok(()) => aborted += 1,
                    Err(error) => match failure("abort an upload of", &path, error) {
                        // Completed or aborted by somebody else since it was listed.
                        (Some(refused), _) if refused.status == 404 => {}
                        (_, error) => return Err(error),
                    },
                }
            }
            from = page.next.filter(|next| *next != marker);
        }
        Ok(aborted)
    }
}

impl S3Uploads {
    /// Whether an upload is one below our prefix, old enough and given up. One that claims to be of
    /// the future is young.
    fn is_due(&self, upload: &Upload, age_min: Duration, is_nobodys: IsNobodys<'_>) -> bool {
        let name = upload.key.strip_prefix(&self.prefix).and_then(|name| BlobName::new(name).ok());
        name.is_some_and(|name| is_nobodys(&name))
            && SystemTime::now().duration_since(upload.begun).is_ok_and(|age| age >= age_min)
    }

    async fn page(&self, (key, id): &(String, String)) -> Result<Page> {
        let mut query = format!("uploads=&prefix={}", encoded(&self.prefix));
        if !key.is_empty() {
            query.push_str(&format!("&key-marker={}&upload-id-marker={}", encoded(key), encoded(id)));
        }
        let text = self.requests.text(Asked::get(format!("?{query}"))).await;
        let text = text.map_err(|error| failure("list unfinished uploads below", &self.prefix, error).1)?;
        parse_page(&text)
            .ok_or_else(|| BackendError::new(ErrorKind::Corrupt, "the listing of unfinished uploads cannot be read"))
    }
}

impl std::fmt::Debug for S3Uploads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "unfinished uploads of {:?}", self.requests)
    }
}

fn parse_page(text: &str) -> Option<Page> {
    element(text, "ListMultipartUploadsResult").or_else(|| text.find("<ListMultipartUploadsResult").map(|_| text))?;
    let mut uploads = Vec::new();
    for part in text.split("<Upload>").skip(1) {
        let begun = OffsetDateTime::parse(element(part, "Initiated")?, &Rfc3339).ok()?;
        uploads.push(Upload {
            key: plain_text(element(part, "Key")?),
            id: plain_text(element(part, "UploadId")?),
            begun: begun.into(),
        });
    }
    let next = match element(text, "IsTruncated") {
        Some("true") => {
            Some((plain_text(element(text, "NextKeyMarker")?), plain_text(element(text, "NextUploadIdMarker")?)))
        }
        _ => None,
    };
    Some(Page { uploads, next })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGE: &str = "<?xml version=\"1.0\"?><ListMultipartUploadsResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
        <Bucket>b</Bucket><KeyMarker></KeyMarker><NextKeyMarker>p/a&amp;b</NextKeyMarker>\
        <NextUploadIdMarker>id2</NextUploadIdMarker><IsTruncated>true</IsTruncated>\
        <Upload><Key>p/blobs/1</Key><UploadId>id1</UploadId><Initiator><ID>i</ID></Initiator>\
        <Initiated>2026-01-02T03:04:05.678Z</Initiated></Upload>\
        <Upload><Key>p/a&amp;b</Key><UploadId>id2</UploadId><Initiated>1970-01-01T00:00:10Z</Initiated></Upload>\
        </ListMultipartUploadsResult>";

    #[test]
    fn a_page_is_read_with_its_successor() {
        let page = parse_page(PAGE).unwrap();
        assert_eq!(page.next, Some(("p/a&b".to_owned(), "id2".to_owned())));
        assert_eq!(page.uploads.len(), 2);
        assert_eq!((&*page.uploads[0].key, &*page.uploads[0].id), ("p/blobs/1", "id1"));
        assert_eq!(page.uploads[1].begun, SystemTime::UNIX_EPOCH + Duration::from_secs(10));
    }

    #[test]
    fn what_is_no_listing_is_not_an_empty_one() {
        for text in ["", "<html></html>", "<ListBucketResult></ListBucketResult>"] {
            assert_eq!(parse_page(text), None, "{text}");
        }
        let without_a_date = PAGE.replace("Initiated", "Begun");
        assert_eq!(parse_page(&without_a_date), None);
    }

    proptest! {
        #[test]
        fn any_answer_can_be_read(cut in 0usize..600, noise in "\\PC{0,20}") {
            let cut = (0..=cut.min(PAGE.len())).rev().find(|at| PAGE.is_char_boundary(*at)).unwrap_or(0);
            let _ = parse_page(&format!("{}{noise}{}", &PAGE[..cut], &PAGE[cut..]));
        }
    }
}
