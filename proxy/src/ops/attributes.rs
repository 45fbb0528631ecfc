//! GetObjectAttributes: what is known of an object without its content.

use super::{
    object_facts,
    request::{Answer, Result, S3Request, document, set, time_of},
    versions,
};
use crate::engine::VersionFacts;
use s3_wire::{
    ETag,
    checksum::Checksum,
    headers::AttributesParams,
    timestamp,
    xml::response::{GetObjectAttributesResponse, ObjectParts},
};

/// Answers with the attributes a request names.
pub(super) async fn get_object_attributes(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    let key = request.key()?;
    // S3 asks for both: what it answers is what a HEAD would tell.
    let read = if request.version()?.is_some() { "s3:GetObjectVersion" } else { "s3:GetObject" };
    request.authorize_version(read, &here.bucket, key, request.version()?).await?;
    let params = AttributesParams::from_headers(&request.headers)?;
    let info = here.addressed(key).await?;
    let facts = &info.facts;
    request.unlock_addressed(facts)?;
    let mut answer = document(&GetObjectAttributesResponse {
        etag: params.etag.then(|| ETag::from_wire(&facts.etag)),
        checksum: object_facts::first_checksum(&facts.checksums).filter(|_| params.checksum),
        parts: parts_of(facts, &params).filter(|_| params.parts),
        storage_class: params.storage_class.then(|| object_facts::storage_class_name(facts.storage_class.as_deref())),
        size: params.size.then_some(info.version.size),
    });
    versions::write(answer.headers_mut(), &here.bucket, info.version.reference());
    set(answer.headers_mut(), "last-modified", &timestamp::http_date(time_of(info.version.modified_ms)));
    Ok(answer)
}

/// The page of parts that is asked for; `None` for an object of one PUT.
fn parts_of(facts: &VersionFacts, params: &AttributesParams) -> Option<ObjectParts> {
    if facts.parts.is_empty() {
        return None;
    }
    let algorithm = object_facts::first_checksum(&facts.checksums).map(|checksum| checksum.algorithm());
    let limit = usize::try_from(params.max_parts).unwrap_or(usize::MAX);
    let mut after = facts.parts.iter().filter(|part| part.number > params.part_number_marker);
    let parts: Vec<_> = after
        .by_ref()
        .take(limit)
        .map(|part| {
            let checksum = part.checksum.as_ref().and_then(|value| Checksum::parse(algorithm?, value).ok());
            (part.number, part.size, checksum)
        })
        .collect();
    let is_truncated = limit > 0 && after.next().is_some();
    Some(ObjectParts {
        total: facts.parts.len(),
        part_number_marker: params.part_number_marker,
        next_part_number_marker: parts.last().map(|(number, ..)| *number),
        max_parts: params.max_parts,
        is_truncated,
        parts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::PartSize;

    #[test]
    fn parts_are_told_in_pages() {
        let part = |number| PartSize { number, size: 10, checksum: None };
        let facts = VersionFacts { parts: [1, 3, 4, 9].map(part).to_vec(), ..VersionFacts::default() };
        let page = |max_parts, part_number_marker| {
            let params = AttributesParams { max_parts, part_number_marker, ..AttributesParams::default() };
            let page = parts_of(&facts, &params).expect("it has parts");
            let numbers: Vec<u32> = page.parts.iter().map(|(number, ..)| *number).collect();
            (numbers, page.is_truncated, page.next_part_number_marker, page.total)
        };
        assert_eq!(page(2, 0), (vec![1, 3], true, Some(3), 4));
        assert_eq!(page(2, 3), (vec![4, 9], false, Some(9), 4));
        assert_eq!(page(0, 0), (vec![], false, None, 4));
        assert!(parts_of(&VersionFacts::default(), &AttributesParams::default()).is_none());
    }
}
