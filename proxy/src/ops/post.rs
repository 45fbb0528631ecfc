//! PostObject: an upload by a form in a browser. The fields come first, then the file, which is
//! streamed like the body of a PUT.

use super::{
    body::{AnswerBody, RequestBody},
    digest::PayloadDigest,
    encryption, object_facts,
    put::DEFAULT_CHECKSUM,
    request::{Answer, InBucket, PUT_BYTES_MAX, Result, S3Request, empty, set},
    versions,
};
use crate::{
    audit::{NamedObject, OfBody},
    auth::Look,
    engine::{Destination, StagedBody, Stretch, Terms, notify::Event},
};
use bytes::Bytes;
use catalog::Precondition;
use futures::{Stream, StreamExt as _};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use multer::{Field, Multipart};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use s3_wire::{
    DecodedBody, ETag, ErrorCode, Framing, ObjectKey, S3Error,
    checksum::{Claims, DigestValues},
    headers,
    post_policy::{FormFields, PostPolicy, missing_field},
    response,
    sigv4::PayloadMode,
    tags::OBJECT_TAGS_MAX,
    xml::{request::parse_tagging, response::PostResponse},
};
use std::{sync::Arc, time::SystemTime};

/// The most bytes of the fields before the file.
pub(crate) const FIELDS_BYTES_MAX: usize = 20 << 10;
/// The most fields before the file.
pub(crate) const FIELDS_MAX: usize = 200;

/// Stores the file of a form.
pub(super) async fn post_object(request: &S3Request, body: &mut RequestBody) -> Result<Answer> {
    let boundary = boundary_of(request)?;
    let framing = Framing::from_headers(&request.headers, &PayloadMode::Unsigned)?;
    let mut body = DecodedBody::new(body, framing);
    let mut form = Multipart::new(&mut body, boundary);
    let (mut fields, file) = read_fields(&mut form).await?;
    let name = file.file_name().unwrap_or_default().to_owned();
    let key = fields
        .get("key")
        .map(|key| key.replace("${filename}", base_name(&name)))
        .ok_or_else(|| missing_field("key"))?;
    let key = ObjectKey::new(key)?;
    fields.set("key", key.as_str().to_owned());

    let policy = fields.get("policy").map(PostPolicy::parse).transpose()?;
    let request = signed(request, &fields, policy.as_ref())?;
    request.tell_of_form(&key);
    headers::refuse_unsupported(&request.headers)?;
    let tags = fields.get("tagging").map(|document| parse_tagging(document.as_bytes(), OBJECT_TAGS_MAX)).transpose()?;
    let request = tags.as_ref().map_or_else(|| request.clone(), |tags| request.saying_tags(tags));
    let here = request.in_bucket().await?.writing(key.as_str())?;
    request.authorize("s3:PutObject", &here.bucket, Some(key.as_str())).await?;
    request.authorize_additions(&here.bucket, key.as_str(), tags.as_ref())?;
    let mut facts = object_facts::from_headers(&request.headers)?;
    if let Some(tags) = tags {
        facts.tags = tags.into_map();
    }
    here.own(&mut facts).await?;
    let sealing = here.sealing()?;
    let (salt, bucket) = encryption::begun(&here.bucket, sealing.as_ref())?;

    let claims = Claims::from_headers(&request.headers, &PayloadMode::Unsigned)?;
    let lock = here.wanted_lock()?;
    here.expect_digest(lock, &claims)?;
    let algorithm = claims.stored_algorithm().unwrap_or(DEFAULT_CHECKSUM);
    let (least, most) = policy.and_then(|policy| policy.length()).unwrap_or((0, PUT_BYTES_MAX));
    let content = bounded(file, most.min(PUT_BYTES_MAX));
    let digest = PayloadDigest::new(claims.digests().with(algorithm), &bucket);
    let destination = Destination::Object { key: key.as_str().to_owned() };
    let staged = Box::pin(request.service.engine.stager.stage(&bucket, destination, None, content, digest)).await;
    let staged: StagedBody<DigestValues> = staged.map_err(|error| request.store_refusal(error))?;
    if staged.plain_len < least {
        return Err(S3Error::new(ErrorCode::EntityTooSmall)
            .field("ProposedSize", staged.plain_len.to_string())
            .field("MinSizeAllowed", least.to_string()));
    }
    claims.verify(&staged.digests)?;
    // Without its end the form may have been cut anywhere, so nothing of it counts.
    while let Some(field) = form.next_field().await.map_err(broken)? {
        let _after_the_file = field.name();
    }
    drop(form);
    read_to_end(&mut body).await?;

    let md5 = staged.digests.md5.expect("MD5 is in the set of every payload digest");
    let etag = sealing.as_ref().map_or_else(|| ETag::from_md5(md5), |sealing| sealing.etag(md5));
    let stretches = salt.map(|salt| vec![Stretch { len: staged.plain_len, salt }]).unwrap_or_default();
    facts.encryption = sealing.map(|sealing| sealing.facts_of(stretches));
    let encryption = facts.encryption.clone();
    let checksum = staged.digests.checksum(algorithm);
    facts.etag = etag.as_str().to_owned();
    facts.checksums = checksum.iter().map(object_facts::kept).collect();
    facts.checksum_type = checksum.map(|checksum| checksum.checksum_type().as_str().to_owned());
    let (size, tags) = (staged.plain_len, facts.tags.clone());
    let cause = request.cause(&here.bucket, Event::Post);
    let terms = Terms { precondition: Precondition::None, lock: here.lock_now(lock)?, cause };
    let published = request.service.engine.publisher.publish(&here.bucket, key.as_str(), staged, facts, terms).await;
    let published = published.map_err(|error| request.refusal(error))?;
    let mut answer = here.answer_form(&fields, key.as_str(), &etag);
    object_facts::note_form(answer.extensions_mut(), published.storage.form);
    versions::write_made(answer.headers_mut(), published.reference());
    encryption::write(answer.headers_mut(), encryption.as_ref(), &request.headers, &here.bucket);
    here.write_expiration(answer.headers_mut(), key.as_str(), size, &tags, published.committed.modified_ms)?;
    if let Some(checksum) = &checksum {
        object_facts::write_checksum(answer.headers_mut(), checksum);
    }
    Ok(answer)
}

/// What parts the fields of the form.
fn boundary_of(request: &S3Request) -> Result<String> {
    let content_type = request.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let boundary = content_type.and_then(|value| multer::parse_boundary(value).ok());
    boundary.ok_or_else(|| {
        let is_form = content_type.is_some_and(|value| value.to_ascii_lowercase().starts_with("multipart/form-data"));
        if is_form {
            return S3Error::new(ErrorCode::MalformedPOSTRequest);
        }
        S3Error::with_message(
            ErrorCode::PreconditionFailed,
            "Bucket POST must be of the enclosure-type multipart/form-data",
        )
    })
}

/// The request that the fields make, by whoever signed them. They keep to the policy.
fn signed(request: &S3Request, fields: &FormFields, policy: Option<&PostPolicy>) -> Result<S3Request> {
    let users = request.service.users();
    let look = Look::new(&users, SystemTime::now());
    request.service.verifier.authenticate_form(fields, &look)?;
    let principal = look.principal();
    if let Some(policy) = policy {
        policy.check(request.bucket_name()?, fields, SystemTime::now())?;
    }
    Ok(S3Request {
        headers: Arc::new(headers_of(fields)?),
        payload: PayloadMode::Unsigned,
        principal,
        ..request.clone()
    })
}

/// Reads a body to its end.
async fn read_to_end(body: &mut DecodedBody<&mut RequestBody>) -> Result<()> {
    while let Some(piece) = body.next().await {
        piece?;
    }
    body.trailers().ok_or_else(|| S3Error::new(ErrorCode::IncompleteBody).closing())?;
    Ok(())
}

/// Reads the fields up to the file.
async fn read_fields<'r>(form: &mut Multipart<'r>) -> Result<(FormFields, Field<'r>)> {
    let no_file = || S3Error::invalid_argument("file", "", "POST requires exactly one file upload per request.");
    let mut fields = FormFields::default();
    let mut bytes_left = FIELDS_BYTES_MAX;
    for _ in 0..FIELDS_MAX {
        let Some(mut field) = form.next_field().await.map_err(broken)? else {
            return Err(no_file());
        };
        let name = field.name().unwrap_or_default().to_owned();
        if name.eq_ignore_ascii_case("file") {
            return Ok((fields, field));
        }
        if name.is_empty() && field.file_name().is_some() {
            return Err(no_file().closing());
        }
        let mut value = Vec::new();
        while let Some(piece) = field.chunk().await.map_err(broken)? {
            bytes_left = bytes_left
                .checked_sub(piece.len())
                .ok_or_else(|| S3Error::new(ErrorCode::MaxPostPreDataLengthExceededError).closing())?;
            value.extend_from_slice(&piece);
        }
        let value = String::from_utf8(value)
            .map_err(|_| S3Error::invalid_argument("form", name.clone(), "A field of the form is not UTF-8."))?;
        fields.push(&name, value)?;
    }
    Err(S3Error::new(ErrorCode::MaxPostPreDataLengthExceededError).closing())
}

/// Reads pieces as the body of a form, up to the file: how many fields it has, and how long they
/// are. For fuzz targets.
pub(crate) async fn read_anything(pieces: &[&[u8]]) -> Option<(usize, usize)> {
    let pieces: Vec<Result<Bytes>> = pieces.iter().map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    let mut form = Multipart::new(futures::stream::iter(pieces), "b");
    let (fields, mut file) = read_fields(&mut form).await.ok()?;
    let _ = headers_of(&fields);
    while let Ok(Some(_)) = file.chunk().await {}
    let lens: Vec<usize> = fields.iter().map(|(_, value)| value.len()).collect();
    Some((lens.len(), lens.iter().sum()))
}

/// The fields that a PUT has as headers.
fn headers_of(fields: &FormFields) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in fields.iter() {
        let name = match name {
            "acl" => "x-amz-acl",
            // A browser that does not know the kind of a file sends it empty.
            "content-type" if value.is_empty() => continue,
            "cache-control"
            | "content-disposition"
            | "content-encoding"
            | "content-language"
            | "content-md5"
            | "content-type"
            | "expires" => name,
            signature if SIGNATURE.contains(&signature) => continue,
            name if name.starts_with("x-amz-") => name,
            _ => continue,
        };
        let refused = || S3Error::invalid_argument("form", name, "The field is not valid as a header.");
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused())?;
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| refused())?;
        headers.insert(name, value);
    }
    Ok(headers)
}

const SIGNATURE: [&str; 5] =
    ["x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-security-token", "x-amz-signature"];

/// A file's name without the folders that some browsers send along.
fn base_name(name: &str) -> &str {
    name.rsplit(['/', '\\']).next().unwrap_or(name)
}

/// The bytes of the file, at most `bytes_max`.
fn bounded<'f>(file: Field<'f>, bytes_max: u64) -> impl Stream<Item = Result<Bytes>> + Send + 'f {
    let mut received = 0_u64;
    file.map(move |piece| {
        let piece = piece.map_err(broken)?;
        received += piece.len() as u64;
        if received > bytes_max {
            return Err(S3Error::new(ErrorCode::EntityTooLarge)
                .field("ProposedSize", received.to_string())
                .field("MaxSizeAllowed", bytes_max.to_string())
                .closing());
        }
        Ok(piece)
    })
}

/// What is wrong with a form that cannot be read: the body's own error, or its shape.
fn broken(error: multer::Error) -> S3Error {
    match error {
        multer::Error::StreamReadFailed(inner) => match inner.downcast::<S3Error>() {
            Ok(error) => *error,
            Err(_) => S3Error::new(ErrorCode::IncompleteBody).closing(),
        },
        multer::Error::IncompleteFieldData { .. } | multer::Error::IncompleteStream => {
            S3Error::new(ErrorCode::IncompleteBody).closing()
        }
        _ => S3Error::new(ErrorCode::MalformedPOSTRequest).closing(),
    }
}

impl S3Request {
    /// Has the logs say who signed the form, and for which object.
    fn tell_of_form(&self, key: &ObjectKey) {
        let user = self.principal.user().map(|user| user.name.clone()).unwrap_or_default();
        let object = NamedObject { key: key.as_str().to_owned(), version: None, code: None };
        // A form is told of once.
        let _ = self.of_body.set(OfBody { user, objects: vec![object] });
    }
}

impl InBucket<'_> {
    /// A redirect where the form asks for one that can be made, else the status it asks for, 204 by
    /// default.
    fn answer_form(&self, fields: &FormFields, key: &str, etag: &ETag) -> Answer {
        let bucket = &self.bucket.row.name;
        let path = object_facts::encoded_path(&format!("/{bucket}/{key}"));
        let location = format!("{}://{}{path}", self.service.scheme, self.target.host);
        let redirect = fields.get("success_action_redirect").or_else(|| fields.get("redirect"));
        let to = redirect.and_then(|url| redirect_to(url, bucket, key, etag));
        let mut answer = match (to, fields.get("success_action_status")) {
            (Some(to), _) => {
                let mut answer = empty(StatusCode::SEE_OTHER);
                answer.headers_mut().insert(header::LOCATION, to);
                set(answer.headers_mut(), "etag", &etag.quoted());
                return answer;
            }
            (None, Some("200")) => empty(StatusCode::OK),
            (None, Some("201")) => {
                let created = PostResponse {
                    location: location.clone(),
                    bucket: bucket.clone(),
                    key: key.to_owned(),
                    etag: etag.clone(),
                };
                response::document(StatusCode::CREATED, &created).map(AnswerBody::from)
            }
            (None, _) => empty(StatusCode::NO_CONTENT),
        };
        set(answer.headers_mut(), "location", &location);
        set(answer.headers_mut(), "etag", &etag.quoted());
        answer
    }
}

/// The URL a browser is sent to, with what was stored in its query. `None` when the form names none
/// that a browser could go to.
fn redirect_to(url: &str, bucket: &str, key: &str, etag: &ETag) -> Option<HeaderValue> {
    let parsed: http::Uri = url.parse().ok()?;
    if !matches!(parsed.scheme_str(), Some("http" | "https")) || parsed.host().is_none() {
        return None;
    }
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let joint = if parsed.query().is_some() { '&' } else { '?' };
    let query = format!("bucket={}&key={}&etag={}", encode(bucket), encode(key), encode(&etag.quoted()));
    HeaderValue::from_str(&format!("{url}{joint}{query}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_takes_along_what_was_stored_and_leads_to_a_web_page_alone() {
        let to = |url: &str| {
            redirect_to(url, "b", "a key&1", &ETag::from_wire("tag")).map(|to| to.to_str().unwrap().to_owned())
        };
        let query = "bucket=b&key=a%20key%261&etag=%22tag%22";
        assert_eq!(to("https://example.com/done").unwrap(), format!("https://example.com/done?{query}"));
        assert_eq!(to("http://example.com/?x=1").unwrap(), format!("http://example.com/?x=1&{query}"));
        for url in
            ["javascript:alert(1)", "/done", "", "https://", "ftp://example.com/", "https://example.com/\r\nX: y"]
        {
            assert_eq!(to(url), None, "{url}");
        }
    }

    #[test]
    fn the_name_of_a_file_is_its_last_part() {
        for (sent, name) in [("a.txt", "a.txt"), ("C:\\Users\\me\\a.txt", "a.txt"), ("/docs/a.txt", "a.txt"), ("", "")]
        {
            assert_eq!(base_name(sent), name);
        }
    }

    #[test]
    fn fields_become_the_headers_of_a_put() {
        let mut fields = FormFields::default();
        for (name, value) in [
            ("acl", "private"),
            ("Content-Type", "text/plain"),
            ("x-amz-meta-a", "ü"),
            ("x-amz-date", "d"),
            ("key", "k"),
        ] {
            fields.push(name, value.to_owned()).unwrap();
        }
        let headers = headers_of(&fields).unwrap();
        assert_eq!(headers.len(), 3);
        assert_eq!(headers["x-amz-acl"], "private");
        assert_eq!(headers["x-amz-meta-a"].as_bytes(), "ü".as_bytes());
        fields.push("x-amz-meta-b", "a\r\nb".to_owned()).unwrap();
        assert!(headers_of(&fields).is_err());
    }
}
