//! The objects of a backup, in whatever store its URL names: written once, read whole.
//!
//! Every object is sealed: eight bytes that say what it is, a hash of the rest, and the rest. So a flipped
//! bit, a cut object and an object of something else are noticed whenever one is read.

use anyhow::{Context, Result, bail};
use futures_util::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, ObjectStoreScheme, PutMode, PutOptions, PutPayload};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use txn::hash::hash_bytes;
use url::Url;

const MAGIC: &[u8; 8] = b"ORDOBKP1";
const HEAD_BYTES: usize = 16;

/// What came of writing an object that must not be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    Now,
    /// It was there: nothing was changed.
    Before,
}

/// An object is not what was written.
#[derive(Debug, thiserror::Error)]
#[error("{0} is damaged: its checksum is wrong")]
pub struct Damaged(String);

/// The objects under a URL. Calls wait.
pub struct Objects {
    store: Box<dyn ObjectStore>,
    prefix: Path,
    runtime: tokio::runtime::Runtime,
    throttle: Throttle,
    /// How many bytes of objects were written.
    pub written_bytes: u64,
}

impl Objects {
    /// Those under a URL of files (`file:///directory`) or of a bucket (`s3://bucket/prefix`, with the usual
    /// variables of the environment), at most so many bytes of which are written in a second, if given.
    pub fn open(url: &str, bytes_per_second_max: Option<u64>) -> Result<Objects> {
        let parsed = Url::parse(url)
            .with_context(|| format!("'{url}' is no URL: use file:///directory or s3://bucket/prefix"))?;
        let (scheme, prefix) = ObjectStoreScheme::parse(&parsed).with_context(|| format!("the URL {url}"))?;
        let store: Box<dyn ObjectStore> = match scheme {
            ObjectStoreScheme::Local => {
                Box::new(object_store::local::LocalFileSystem::new().with_fsync(true))
            }
            ObjectStoreScheme::AmazonS3 => {
                // There may be one already: then it is the same.
                let _ = rustls::crypto::ring::default_provider().install_default();
                Box::new(AmazonS3Builder::from_env().with_url(url).build().with_context(|| {
                    format!(
                        "{url}: the variables AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY say \
                         how a bucket is reached, and AWS_ENDPOINT where, if it is not Amazon's"
                    )
                })?)
            }
            _ => bail!("a backup cannot be at {url}: use file:///directory or s3://bucket/prefix"),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let throttle = Throttle::new(bytes_per_second_max);
        Ok(Objects { store, prefix, runtime, throttle, written_bytes: 0 })
    }

    fn path(&self, name: &str) -> Path {
        name.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// Writes an object that is never changed, unless it is there.
    pub fn put_new(&mut self, name: &str, content: &[u8]) -> Result<Put> {
        self.put(name, content, PutMode::Create)
    }

    /// Writes an object in the place of the one that is there.
    pub fn replace(&mut self, name: &str, content: &[u8]) -> Result<()> {
        self.put(name, content, PutMode::Overwrite).map(|_| ())
    }

    /// Whether an object can be written, and is kept where it is there already.
    pub fn keeps_what_is_there(&mut self) -> Result<bool> {
        const PROBE: &str = "probe";
        self.put_new(PROBE, b"")?;
        let is_kept = self.put_new(PROBE, b"")? == Put::Before;
        // Who may not remove objects leaves it: it is nothing to a chain.
        let _ = self.runtime.block_on(self.store.delete(&self.path(PROBE)));
        Ok(is_kept)
    }

    fn put(&mut self, name: &str, content: &[u8], mode: PutMode) -> Result<Put> {
        let mut sealed = Vec::with_capacity(HEAD_BYTES + content.len());
        sealed.extend_from_slice(MAGIC);
        sealed.extend_from_slice(&hash_bytes(content).to_le_bytes());
        sealed.extend_from_slice(content);
        let bytes = sealed.len() as u64;
        self.throttle.pass(bytes);
        let path = self.path(name);
        let options = PutOptions { mode, ..PutOptions::default() };
        let put = self.store.put_opts(&path, PutPayload::from(sealed), options);
        match self.runtime.block_on(put) {
            Ok(_) => {
                self.written_bytes += bytes;
                Ok(Put::Now)
            }
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(Put::Before),
            Err(error) => Err(error).with_context(|| format!("{name} cannot be written to the backup")),
        }
    }

    /// What an object holds; `None` if it is not there.
    pub fn find(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let path = self.path(name);
        let get = async { self.store.get(&path).await?.bytes().await };
        let bytes = match self.runtime.block_on(get) {
            Ok(bytes) => bytes,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("{name} cannot be read")),
        };
        let sealed = bytes.strip_prefix(MAGIC).and_then(|rest| rest.split_first_chunk::<8>());
        match sealed {
            Some((hash, content)) if hash_bytes(content) == u64::from_le_bytes(*hash) => {
                Ok(Some(content.to_vec()))
            }
            _ => Err(Damaged(name.to_owned()).into()),
        }
    }

    /// What an object holds that must be there.
    pub fn get(&self, name: &str) -> Result<Vec<u8>> {
        self.find(name)?.with_context(|| format!("{name} is missing"))
    }

    /// The names of all objects, and the lengths of what they hold, in bytes.
    pub fn list(&self) -> Result<BTreeMap<String, u64>> {
        let list = self.store.list(Some(&self.prefix)).try_collect::<Vec<_>>();
        let found = self.runtime.block_on(list).context("the backup cannot be listed")?;
        let named = found.into_iter().filter_map(|meta| {
            let parts = meta.location.prefix_match(&self.prefix)?;
            let parts: Vec<String> = parts.map(|part| part.as_ref().to_owned()).collect();
            Some((parts.join("/"), meta.size.saturating_sub(HEAD_BYTES as u64)))
        });
        Ok(named.collect())
    }
}

/// Holds writers back, so that no more bytes pass in a second than allowed.
struct Throttle {
    bytes_per_second_max: Option<u64>,
    /// When the bytes that have passed are paid for.
    free_at: Instant,
}

impl Throttle {
    fn new(bytes_per_second_max: Option<u64>) -> Throttle {
        Throttle { bytes_per_second_max, free_at: Instant::now() }
    }

    /// Waits until all that has passed before is paid for.
    fn pass(&mut self, bytes: u64) {
        let Some(max) = self.bytes_per_second_max else { return };
        let now = Instant::now();
        std::thread::sleep(self.free_at.saturating_duration_since(now));
        let costs = Duration::from_secs_f64(bytes as f64 / max.max(1) as f64);
        self.free_at = self.free_at.max(now) + costs;
    }
}
