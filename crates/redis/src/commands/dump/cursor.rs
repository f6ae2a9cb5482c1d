//! Taking bytes from the front of a byte string.

/// What is left of a byte string.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl<'a> Cursor<'a> {
    /// The next bytes, if there are so many.
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// The next bytes, so many.
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    /// An integer of so many bytes with a sign, little endian; at most 8.
    pub(crate) fn signed(&mut self, len: usize) -> Option<i64> {
        let unused = 8 - len;
        let mut bytes = [0; 8];
        bytes[unused..].copy_from_slice(self.take(len)?);
        Some(i64::from_le_bytes(bytes) >> (8 * unused))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
