//! Listings of objects and uploads: a page of the catalog each, sizes and tags exact.

use super::{
    multipart, object_facts,
    request::{Answer, InBucket, Result, S3Request, document, time_of},
    token,
};
use catalog::{ListEntry, ListPage, ListQuery, UploadsPage, UploadsQuery, Version};
use s3_wire::{
    ETag,
    headers::{ListObjectsParams, ListUploadsParams},
    xml::response::{
        ListMultipartUploadsResult, ListObjectsResult, ListObjectsV2Result, ObjectEntry, Owner, UploadEntry,
    },
};

/// ListObjects, version 1.
pub(super) async fn list_objects(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    let params = ListObjectsParams::from_query(&request.target.query)?;
    let after = Some(params.marker.clone()).filter(|marker| !marker.is_empty());
    let page = here.page(&params, after).await?;
    let owner = here.owner();
    let (objects, common_prefixes) = here.entries(page.entries, Some(&owner))?;
    Ok(document(&ListObjectsResult {
        bucket: here.bucket.row.name.clone(),
        marker: params.marker,
        is_truncated: page.next.is_some(),
        // Without a delimiter the last key is the next marker, and S3 leaves it for the client to
        // find.
        next_marker: page.next.filter(|_| params.delimiter.is_some()),
        prefix: params.prefix,
        delimiter: params.delimiter,
        max_keys: params.max_keys,
        encoding_type_url: params.encoding_type_url,
        objects,
        common_prefixes,
    }))
}

/// ListObjectsV2.
pub(super) async fn list_objects_v2(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    let params = ListObjectsParams::from_query(&request.target.query)?;
    let after = match params.continuation_token.as_deref().filter(|token| !token.is_empty()) {
        Some(token) => Some(token::decode(token)?),
        None => params.start_after.clone().filter(|start| !start.is_empty()),
    };
    let page = here.page(&params, after).await?;
    let owner = params.fetch_owner.then(|| here.owner());
    let (objects, common_prefixes) = here.entries(page.entries, owner.as_ref())?;
    Ok(document(&ListObjectsV2Result {
        bucket: here.bucket.row.name.clone(),
        is_truncated: page.next.is_some(),
        next_continuation_token: page.next.as_deref().map(token::encode),
        prefix: params.prefix,
        delimiter: params.delimiter,
        start_after: params.start_after,
        continuation_token: params.continuation_token,
        max_keys: params.max_keys,
        encoding_type_url: params.encoding_type_url,
        objects,
        common_prefixes,
    }))
}

impl InBucket<'_> {
    async fn page(&self, params: &ListObjectsParams, after: Option<String>) -> Result<ListPage> {
        let limit = usize::try_from(params.max_keys).unwrap_or(usize::MAX);
        if limit == 0 {
            // S3 answers an empty page that is not truncated.
            return Ok(ListPage::default());
        }
        let query = ListQuery {
            bucket: self.bucket.row.id,
            prefix: params.prefix.clone(),
            delimiter: params.delimiter.clone(),
            after,
            limit,
        };
        self.service.engine.catalog().list(&query).await.map_err(|error| self.refusal(error.into()))
    }

    pub(super) fn owner(&self) -> Owner {
        self.service.users().owner(&self.bucket.row.owner)
    }

    fn entries(&self, entries: Vec<ListEntry>, owner: Option<&Owner>) -> Result<(Vec<ObjectEntry>, Vec<String>)> {
        let mut objects = Vec::with_capacity(entries.len());
        let mut common_prefixes = Vec::new();
        for entry in entries {
            match entry {
                ListEntry::Key(version) => objects.push(self.entry(version, owner.cloned())?),
                ListEntry::CommonPrefix(prefix) => common_prefixes.push(prefix),
            }
        }
        Ok((objects, common_prefixes))
    }

    pub(super) fn entry(&self, version: Version, owner: Option<Owner>) -> Result<ObjectEntry> {
        let facts =
            self.service.engine.read.open_listed(&self.bucket, &version).map_err(|error| self.refusal(error))?;
        Ok(ObjectEntry {
            last_modified: time_of(version.modified_ms),
            etag: ETag::from_wire(&facts.etag),
            size: version.size,
            storage_class: object_facts::storage_class_name(facts.storage_class.as_deref()),
            owner: owner.map(|bucket_owner| facts.owner.as_deref().map_or(bucket_owner, |id| self.users.owner(id))),
            checksum: object_facts::listed_checksum(&facts),
            key: version.key,
        })
    }
}

/// ListMultipartUploads.
pub(super) async fn list_uploads(request: &S3Request) -> Result<Answer> {
    let here = request.in_bucket().await?;
    let params = ListUploadsParams::from_query(&request.target.query)?;
    let limit = usize::try_from(params.max_uploads).unwrap_or(usize::MAX);
    let page = if limit == 0 {
        UploadsPage::default()
    } else {
        let query = UploadsQuery {
            bucket: here.bucket.row.id,
            prefix: params.prefix.clone(),
            delimiter: params.delimiter.clone(),
            key_after: Some(params.key_marker.clone()).filter(|marker| !marker.is_empty()),
            // S3 ignores an upload marker without a key marker; one that is no id is past nothing.
            upload_after: multipart::parse_id(&params.upload_id_marker).filter(|_| !params.key_marker.is_empty()),
            limit,
        };
        request.service.engine.catalog().uploads(&query).await.map_err(|error| request.refusal(error.into()))?
    };
    let mut uploads = Vec::new();
    for upload in page.uploads {
        let facts = request.service.engine.uploads.open_upload_facts(&here.bucket, &upload);
        let facts = facts.map_err(|error| request.refusal(error))?;
        let users = request.service.users();
        uploads.push(UploadEntry {
            upload_id: multipart::id_text(upload.id),
            initiator: users.owner(&upload.owner),
            owner: users.owner(here.owner_of(&facts)),
            storage_class: object_facts::storage_class_name(facts.storage_class.as_deref()),
            initiated: time_of(upload.created_ms),
            checksum: multipart::wanted_checksum(&facts).and_then(|_| object_facts::checksum_kind(&facts)),
            key: upload.key,
        });
    }
    let (next_key_marker, next_upload) = match page.next.filter(|_| page.truncated) {
        Some((key, upload)) => (Some(key), upload),
        None => (None, None),
    };
    Ok(document(&ListMultipartUploadsResult {
        bucket: here.bucket.row.name.clone(),
        prefix: params.prefix,
        delimiter: params.delimiter,
        key_marker: params.key_marker,
        upload_id_marker: params.upload_id_marker,
        next_key_marker,
        next_upload_id_marker: next_upload.map(multipart::id_text),
        max_uploads: params.max_uploads,
        is_truncated: page.truncated,
        encoding_type_url: params.encoding_type_url,
        uploads,
        common_prefixes: page.common_prefixes,
    }))
}
