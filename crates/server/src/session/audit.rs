//! The audit log: who asked for what that changes the server or shows others' doings, and who was refused.
//!
//! Entries are lines of the log with the target [`TARGET`], also where `loglevel` is `warning`. Words are
//! shown without secrets, and shortened as in the slow log.

use super::{Session, ThreadContext};
use crate::observe::shown_words;
use redis_surface::table::{Command, Flags};
use txn::Blob;

/// The target of audit entries.
pub const TARGET: &str = "ordo_audit";

/// Besides administrative commands: what removes everything at once.
const CLEARS: &[&str] = &["flushall", "flushdb"];

impl Session {
    /// A command is taken.
    #[inline]
    pub(super) fn audit_command(&self, thread: &ThreadContext<'_>, command: &Command, argv: &[Blob]) {
        if thread.config.audit_log && (command.is(Flags::ADMIN) || CLEARS.contains(&command.name)) {
            let words: Vec<_> = shown_words(argv).iter().map(quoted).collect();
            self.audit(self.user_name(), "command", &words.join(" "));
        }
    }

    /// A user, or who claims to be one, is refused something: `reason` is `auth`, or what ACL LOG calls it.
    pub(super) fn audit_denial(&self, thread: &ThreadContext<'_>, user: &Blob, reason: &Blob, object: &Blob) {
        if thread.config.audit_log {
            self.audit(user, "refused", &format!("{} {}", quoted(reason), quoted(object)));
        }
    }

    fn audit(&self, user: &Blob, what: &str, words: &str) {
        let address = self.client.address;
        let user = quoted(user);
        tracing::info!(target: TARGET, audit = what, user, client = %address, words, "audit");
    }
}

/// A word as a line of a log can have it: nobody writes a line of his own there.
fn quoted(word: &Blob) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && *byte != b'"';
    match !word.is_empty() && word.iter().all(is_plain) {
        true => String::from_utf8_lossy(word).into_owned(),
        false => format!("{:?}", String::from_utf8_lossy(word)),
    }
}
