//! Immutable byte strings that are cheap to clone and small when short.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// The longest byte string that a [`Blob`] holds without an allocation.
pub const INLINE_BYTES_MAX: usize = 21;

/// An immutable byte string of 24 bytes: short ones are stored in place, longer ones are shared.
///
/// Invariants: a string of at most [`INLINE_BYTES_MAX`] bytes is always in place, so equal contents have
/// equal representations; the mark is a byte of the owner's (a [`crate::Key`] keeps its space there), zero in
/// plain blobs.
#[derive(Clone)]
pub struct Blob(Repr);

#[derive(Clone)]
enum Repr {
    Inline { mark: u8, len: u8, bytes: [u8; INLINE_BYTES_MAX] },
    Shared { mark: u8, bytes: Arc<[u8]> },
}

const _: () = assert!(size_of::<Blob>() == 24, "records and values are laid out around 24-byte blobs");

impl Blob {
    /// What a shared byte string takes beside its bytes.
    pub const SHARED_BYTES: usize = 16;

    /// An empty blob.
    pub const EMPTY: Blob = Blob(Repr::Inline { mark: 0, len: 0, bytes: [0; INLINE_BYTES_MAX] });

    /// Copies `bytes`.
    pub fn new(bytes: &[u8]) -> Blob {
        Blob::marked(0, bytes)
    }

    pub(crate) fn marked(mark: u8, bytes: &[u8]) -> Blob {
        if bytes.len() <= INLINE_BYTES_MAX {
            let mut inline = [0; INLINE_BYTES_MAX];
            inline[..bytes.len()].copy_from_slice(bytes);
            Blob(Repr::Inline { mark, len: bytes.len() as u8, bytes: inline })
        } else {
            Blob(Repr::Shared { mark, bytes: Arc::from(bytes) })
        }
    }

    pub(crate) fn mark(&self) -> u8 {
        match self.0 {
            Repr::Inline { mark, .. } | Repr::Shared { mark, .. } => mark,
        }
    }

    pub(crate) fn with_mark(mut self, new: u8) -> Blob {
        match &mut self.0 {
            Repr::Inline { mark, .. } | Repr::Shared { mark, .. } => *mark = new,
        }
        self
    }

    /// The bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes, .. } => &bytes[..usize::from(*len)],
            Repr::Shared { bytes, .. } => bytes,
        }
    }

    /// The bytes as they are shared, copied if they are in place.
    pub fn into_shared(self) -> Arc<[u8]> {
        match self.0 {
            Repr::Inline { .. } => Arc::from(self.as_bytes()),
            Repr::Shared { bytes, .. } => bytes,
        }
    }

    /// Bytes of heap that this blob keeps alive (0 when in place), for memory accounting.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Repr::Inline { .. } => 0,
            Repr::Shared { bytes, .. } => bytes.len() + Blob::SHARED_BYTES,
        }
    }
}

/// A byte string in a value: a blob, or a part of what a small collection is packed in.
#[derive(Clone, Copy)]
pub enum BlobRef<'a> {
    /// A blob.
    Blob(&'a Blob),
    /// A part of a packed collection.
    Packed(&'a [u8]),
}

impl<'a> BlobRef<'a> {
    /// The bytes.
    #[inline]
    pub fn as_bytes(self) -> &'a [u8] {
        match self {
            BlobRef::Blob(blob) => blob.as_bytes(),
            BlobRef::Packed(bytes) => bytes,
        }
    }
    /// The byte string by itself: shared if it is a blob, copied if it is packed.
    #[inline]
    pub fn to_blob(self) -> Blob {
        match self {
            BlobRef::Blob(blob) => blob.clone(),
            BlobRef::Packed(bytes) => Blob::new(bytes),
        }
    }
}

impl<'a> From<&'a Blob> for BlobRef<'a> {
    fn from(blob: &'a Blob) -> BlobRef<'a> {
        BlobRef::Blob(blob)
    }
}
impl Deref for BlobRef<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}
impl PartialEq for BlobRef<'_> {
    #[inline]
    fn eq(&self, other: &BlobRef<'_>) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}
impl Eq for BlobRef<'_> {}
impl PartialOrd for BlobRef<'_> {
    fn partial_cmp(&self, other: &BlobRef<'_>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for BlobRef<'_> {
    fn cmp(&self, other: &BlobRef<'_>) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}
impl std::hash::Hash for BlobRef<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}
impl fmt::Debug for BlobRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

impl Deref for Blob {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl AsRef<[u8]> for Blob {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Borrow<[u8]> for Blob {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Default for Blob {
    fn default() -> Blob {
        Blob::EMPTY
    }
}

impl PartialEq for Blob {
    #[inline]
    fn eq(&self, other: &Blob) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}
impl Eq for Blob {}
impl PartialEq<[u8]> for Blob {
    fn eq(&self, other: &[u8]) -> bool {
        self.as_bytes() == other
    }
}
impl PartialOrd for Blob {
    fn partial_cmp(&self, other: &Blob) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Blob {
    fn cmp(&self, other: &Blob) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}
impl std::hash::Hash for Blob {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl From<&[u8]> for Blob {
    fn from(bytes: &[u8]) -> Blob {
        Blob::new(bytes)
    }
}
impl<const N: usize> From<&[u8; N]> for Blob {
    fn from(bytes: &[u8; N]) -> Blob {
        Blob::new(bytes)
    }
}
impl From<&str> for Blob {
    fn from(text: &str) -> Blob {
        Blob::new(text.as_bytes())
    }
}
impl From<Arc<[u8]>> for Blob {
    fn from(bytes: Arc<[u8]>) -> Blob {
        if bytes.len() <= INLINE_BYTES_MAX {
            Blob::new(&bytes)
        } else {
            Blob(Repr::Shared { mark: 0, bytes })
        }
    }
}
impl From<String> for Blob {
    fn from(text: String) -> Blob {
        Blob::new(text.as_bytes())
    }
}
impl From<Vec<u8>> for Blob {
    fn from(bytes: Vec<u8>) -> Blob {
        if bytes.len() <= INLINE_BYTES_MAX {
            Blob::new(&bytes)
        } else {
            Blob(Repr::Shared { mark: 0, bytes: bytes.into() })
        }
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_blobs_keep_their_bytes() {
        for len in [0, 1, 21, 22, 23, 4096] {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            assert_eq!(Blob::new(&bytes).as_bytes(), bytes);
            assert_eq!(Blob::from(bytes.clone()), Blob::new(&bytes));
            assert_eq!(Blob::new(&bytes).heap_bytes() == 0, len <= INLINE_BYTES_MAX);
        }
    }
}
