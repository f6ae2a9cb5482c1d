//! What a function of a library writes before it becomes a string of Lua.

use super::super::run::Host;
use mlua::{Lua, Value};

/// Bytes between two looks at the memory.
const BYTES_PER_LOOK: usize = 4096;

/// A buffer that counts with what the VM holds, before it grows, and ends the script where both exceed the
/// limit.
pub(super) struct Output<'a> {
    host: &'a Host,
    lua: &'a Lua,
    bytes: Vec<u8>,
    /// So long it may become before it looks again.
    looked_for: usize,
}

impl<'a> Output<'a> {
    pub fn new(host: &'a Host, lua: &'a Lua) -> Output<'a> {
        Output { host, lua, bytes: Vec::new(), looked_for: 0 }
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The buffer, to which at most `count` bytes may be added.
    pub fn room(&mut self, count: usize) -> mlua::Result<&mut Vec<u8>> {
        let length = self.bytes.len().saturating_add(count);
        if length > self.looked_for {
            self.look(length)?;
        }
        Ok(&mut self.bytes)
    }

    // Apart: functions that call themselves would keep what it has on the stack at each level.
    #[inline(never)]
    fn look(&mut self, length: usize) -> mlua::Result<()> {
        self.host.check_memory_beside(self.lua, length)?;
        self.looked_for = length.saturating_add(BYTES_PER_LOOK);
        Ok(())
    }

    pub fn put(&mut self, bytes: &[u8]) -> mlua::Result<()> {
        self.room(bytes.len())?.extend_from_slice(bytes);
        Ok(())
    }

    /// Makes the string, for which there must be room beside the buffer.
    pub fn into_string(self) -> mlua::Result<Value> {
        let (host, lua) = (self.host, self.lua);
        host.check_memory_beside(lua, 2 * self.bytes.len())?;
        lua.create_string(self.bytes).map(Value::String)
    }
}
