//! A bucket of GCS or a container of Azure as a store of plain objects, over `object_store`.
//!
//! `object_store` takes keys for paths. A key with an empty component ends a listing with an error,
//! and one with a slash at its end is found without it: such objects cannot be adopted from these
//! stores.

use super::{KeyBound, PlainEntry, PlainObject, PlainPut, PlainRead, PlainRemoval, PlainStore, PlainWriter, unnamable};
use crate::{
    BackendError, ByteStream, ErrorKind, Result,
    cloud::{
        CloudBackend,
        bucket::next_page,
        exactly,
        refusal::failure,
        upload::{self, Manner},
    },
};
use async_trait::async_trait;
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use object_store::{Attribute, Attributes, GetOptions, GetRange, GetResult, list::PaginatedListOptions, path::Path};
use std::ops::Range;

/// See the module.
#[derive(Clone, Debug)]
pub struct PlainCloud(CloudBackend);

impl CloudBackend {
    /// The bucket's objects under their own keys, below the configured prefix.
    pub fn plain(&self) -> PlainCloud {
        PlainCloud(self.clone())
    }
}

impl PlainCloud {
    fn path(&self, key: &str) -> Result<Path> {
        let full = format!("{}{key}", self.0.bucket.prefix);
        let path = Path::parse(&full).ok().filter(|path| path.as_ref() == full && !key.is_empty());
        path.ok_or_else(|| unnamable(key, "this store is asked for paths"))
    }

    async fn get(&self, path: &Path, options: GetOptions) -> Result<Option<GetResult>> {
        match self.0.bucket.store.get_opts(path, options).await {
            Ok(found) => Ok(Some(found)),
            Err(error) => match failure("read", path, error) {
                (Some(refused), _) if refused.means_absent() => Ok(None),
                (_, error) => Err(error),
            },
        }
    }
}

#[async_trait]
impl PlainWriter for PlainCloud {
    fn key_bound(&self) -> KeyBound {
        self.0.bucket.key_bound
    }

    async fn write(&self, key: &str, object: &PlainPut, body: ByteStream) -> Result<()> {
        let part_bytes = usize::try_from(object.part_bytes())
            .map_err(|_| BackendError::new(ErrorKind::Invalid, "a part does not fit in memory"))?;
        let manner = Manner { part_bytes, len: Some(object.len), replaces: true, attributes: attributes_of(object)? };
        upload::put(&self.0.bucket, self.path(key)?, body, manner).await.map(drop)
    }
}

/// What stands beside the content, as these stores have it. A storage class is a word of S3's and
/// means nothing to them.
fn attributes_of(object: &PlainPut) -> Result<Attributes> {
    let mut attributes = Attributes::new();
    for (name, value) in &object.headers {
        let attribute = match name.as_str() {
            "content-type" => Attribute::ContentType,
            "content-encoding" => Attribute::ContentEncoding,
            "content-disposition" => Attribute::ContentDisposition,
            "content-language" => Attribute::ContentLanguage,
            "cache-control" => Attribute::CacheControl,
            _ => {
                return Err(BackendError::new(ErrorKind::Invalid, format!("this store keeps no header {name:?}")));
            }
        };
        attributes.insert(attribute, value.clone().into());
    }
    for (name, value) in &object.user_metadata {
        attributes.insert(Attribute::Metadata(name.clone().into()), value.clone().into());
    }
    Ok(attributes)
}

#[async_trait]
impl PlainStore for PlainCloud {
    fn list(&self, prefix: &str, after: Option<&str>) -> BoxStream<'static, Result<PlainEntry>> {
        let own = self.0.bucket.prefix.clone();
        let full = format!("{own}{prefix}");
        let after = after.map(|after| format!("{own}{after}"));
        let pages = stream::try_unfold(Some((self.0.clone(), None)), move |at| {
            let (own, full, after) = (own.clone(), full.clone(), after.clone());
            async move {
                let Some((cloud, page_token)) = at else { return Ok(None) };
                let offset = if page_token.is_none() { after.clone() } else { None };
                let asked_with = page_token.clone();
                let options = PaginatedListOptions { offset, page_token, ..PaginatedListOptions::default() };
                let page = cloud.bucket.store.list_paginated(Some(&full), options).await;
                let page = page.map_err(|error| failure("list", &full, error).1)?;
                let next = next_page(asked_with.as_deref(), page.page_token)?;
                let entries: Vec<_> = page
                    .result
                    .objects
                    .into_iter()
                    .filter_map(|object| {
                        let key = object.location.as_ref().strip_prefix(&own)?.to_owned();
                        // Azure lists whole pages and knows no beginning.
                        let wanted = after.as_ref().is_none_or(|after| object.location.as_ref() > after.as_str());
                        let etag = object.e_tag.map(|etag| etag.trim_matches('"').to_owned());
                        (wanted && !key.is_empty()).then_some(Ok(PlainEntry { key, len: object.size, etag }))
                    })
                    .collect();
                Ok(Some((stream::iter(entries), next.map(|token| (cloud, Some(token))))))
            }
        });
        pages.try_flatten().boxed()
    }

    async fn head(&self, key: &str) -> Result<Option<PlainObject>> {
        let path = self.path(key)?;
        if self.0.bucket.head(&path).await?.is_none() {
            return Ok(None);
        }
        let Some(found) = self.get(&path, GetOptions { head: true, ..GetOptions::default() }).await? else {
            return Ok(None);
        };
        let etag = found.meta.e_tag.as_deref().map(|etag| etag.trim_matches('"').to_owned());
        let mut object = PlainObject {
            len: found.meta.size,
            etag: etag
                .ok_or_else(|| BackendError::new(ErrorKind::Corrupt, format!("the store gives no ETag for {path}")))?,
            modified: Some(found.meta.last_modified.into()),
            ..PlainObject::default()
        };
        for (attribute, value) in &found.attributes {
            let value = value.as_ref().to_owned();
            let name = match attribute {
                Attribute::ContentType => "content-type",
                Attribute::ContentEncoding => "content-encoding",
                Attribute::ContentDisposition => "content-disposition",
                Attribute::ContentLanguage => "content-language",
                Attribute::CacheControl => "cache-control",
                Attribute::Metadata(name) => {
                    object.user_metadata.insert(name.to_ascii_lowercase(), value);
                    continue;
                }
                _ => continue,
            };
            object.headers.insert(name.to_owned(), value);
        }
        Ok(Some(object))
    }

    async fn read(&self, key: &str, etag: &str, range: Range<u64>) -> Result<PlainRead> {
        if range.is_empty() {
            return Ok(PlainRead::Bytes(stream::empty().boxed()));
        }
        let path = self.path(key)?;
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            if_match: Some(format!("\"{etag}\"")),
            ..GetOptions::default()
        };
        match self.0.bucket.store.get_opts(&path, options).await {
            Ok(found) if found.meta.e_tag.as_deref().map(|etag| etag.trim_matches('"')) != Some(etag) => {
                Ok(PlainRead::Changed)
            }
            Ok(found) if found.range != range => Ok(PlainRead::Changed),
            Ok(found) => {
                let pieces = found.into_stream().map_err(move |error| failure("read", &path, error).1).boxed();
                Ok(PlainRead::Bytes(exactly(pieces, range.end - range.start)))
            }
            Err(error) => match failure("read", &path, error) {
                (Some(refused), _) if refused.means_absent() => Ok(PlainRead::Absent),
                (Some(refused), _) if matches!(refused.status.as_u16(), 412 | 416) => Ok(PlainRead::Changed),
                (_, error) => Err(error),
            },
        }
    }

    async fn remove(&self, key: &str, etag: &str) -> Result<PlainRemoval> {
        match self.head(key).await? {
            None => Ok(PlainRemoval::Gone),
            Some(found) if found.etag != etag => Ok(PlainRemoval::Changed),
            Some(_) => self.0.bucket.delete(&self.path(key)?).await.map(|()| PlainRemoval::Gone),
        }
    }
}
