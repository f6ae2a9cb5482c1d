//! AUTH, HELLO, RESET.

use super::{Hold, Session, Speech, ThreadContext, is_word};
use crate::auth_failures::Attempt;
use crate::net::starting::Greeting;
use crate::shared::Shared;
use redis_surface::acl::DEFAULT_USER;
use redis_surface::codec::Protocol;
use redis_surface::errors;
use std::sync::atomic::Ordering;
use std::time::Duration;
use txn::{Args, Blob, Reply};

pub(crate) const WRONG_PASSWORD: Reply =
    Reply::error("WRONGPASS invalid username-password pair or user is disabled.");
pub(crate) const NO_PASSWORD_SET: Reply = Reply::error(
    "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
     configuration is correct?",
);

pub(crate) const NO_AUTH: Reply = Reply::error("NOAUTH Authentication required.");

const NOT_YET: Reply = Reply::error(
    "ERR there were too many failed AUTHs from this address to take another one here: send AUTH by itself, \
     outside of MULTI, and it will be answered in a while",
);

/// An authentication that waits.
#[derive(Debug)]
pub(super) struct Held {
    argv: Args,
    attempt: Attempt,
    /// Until when, in milliseconds since 1970.
    until_ms: u64,
}

impl Session {
    /// Begins an attempt to authenticate, and gives its words back unless it has to wait.
    pub(super) fn begin_attempt(&mut self, thread: &ThreadContext<'_>, argv: Args) -> Option<Args> {
        let attempt = self.attempt_of(thread);
        if attempt.delay.is_zero() {
            self.attempt = Some(attempt);
            return Some(argv);
        }
        let until_ms = thread.now_ms + attempt.delay.as_millis() as u64;
        self.hold = Some(Hold::Attempt(Box::new(Held { argv, attempt, until_ms })));
        None
    }

    fn attempt_of(&self, thread: &ThreadContext<'_>) -> Attempt {
        let delay_max = Duration::from_millis(thread.config.auth_delay_max_ms);
        let failures = &thread.shared.auth_failures;
        failures.begin(self.client.address.ip(), thread.clocks.instant(), delay_max)
    }

    /// When an authentication that waits goes on, in milliseconds since 1970.
    pub(super) fn attempt_at_ms(&self) -> Option<u64> {
        match &self.hold {
            Some(Hold::Attempt(held)) => Some(held.until_ms),
            _ => None,
        }
    }

    /// Goes on with an authentication that has waited, if it has waited long enough.
    pub(super) fn look_at_attempt(&mut self, thread: &mut ThreadContext<'_>) {
        if self.attempt_at_ms().is_none_or(|until_ms| thread.now_ms < until_ms) {
            return;
        }
        if let Some(Hold::Attempt(held)) = self.hold.take() {
            self.attempt = Some(held.attempt);
            self.admit(thread, held.argv);
            self.attempt = None;
            self.note_progress(thread.shared);
            self.looked_at(thread);
        }
    }

    /// The attempt that has waited as long as it must. What is no command by itself cannot wait, and is
    /// refused if it would have to.
    pub(super) fn take_attempt(&mut self, thread: &ThreadContext<'_>) -> Result<Attempt, Reply> {
        if let Some(attempt) = self.attempt.take() {
            return Ok(attempt);
        }
        let attempt = self.attempt_of(thread);
        match attempt.delay.is_zero() {
            true => Ok(attempt),
            false => Err(NOT_YET),
        }
    }

    /// Takes over what the connection has said of itself before it was served.
    pub fn introduced(&mut self, shared: &Shared, greeting: Greeting) {
        if let Some(password) = greeting.password {
            let users = shared.acl.users();
            let default = users.get(DEFAULT_USER);
            self.authenticated |= default.is_some_and(|default| default.user.accepts(&password));
        }
        self.set_protocol(greeting.protocol);
        *self.client.labels.lock() = greeting.labels;
    }

    pub(super) fn auth(&mut self, thread: &ThreadContext<'_>, argv: &Args) -> Reply {
        let result = match &argv[1..] {
            [_] if Session::default_needs_no_password(thread) => Err(NO_PASSWORD_SET),
            [password] => self.authenticate(thread, &argv[0], &Blob::new(DEFAULT_USER), password),
            [user, password] => self.authenticate(thread, &argv[0], user, password),
            _ => Err(errors::SYNTAX),
        };
        result.err().unwrap_or(Reply::OK)
    }

    pub(super) fn hello(&mut self, thread: &ThreadContext<'_>, argv: &Args) -> Reply {
        match self.greet(thread, argv) {
            Ok(()) => self.introduction(thread),
            Err(error) => error,
        }
    }

    /// Takes HELLO's arguments: all of them, or none.
    fn greet(&mut self, thread: &ThreadContext<'_>, argv: &Args) -> Result<(), Reply> {
        let mut words = argv[1..].iter();
        let mut protocol = self.protocol;
        let mut name = None;
        if let Some(version) = words.next() {
            protocol = match version.as_bytes() {
                b"2" => Protocol::Resp2,
                b"3" => Protocol::Resp3,
                other if other.iter().all(u8::is_ascii_digit) => {
                    return Err(Reply::error("NOPROTO unsupported protocol version"));
                }
                _ => {
                    return Err(Reply::error("ERR Protocol version is not an integer or out of range"));
                }
            };
        }
        while let Some(option) = words.next() {
            if is_word(option, "auth") {
                let (Some(user), Some(password)) = (words.next(), words.next()) else {
                    return Err(syntax(option));
                };
                self.authenticate(thread, &argv[0], user, password)?;
            } else if is_word(option, "setname") {
                let Some(word) = words.next() else {
                    return Err(syntax(option));
                };
                name = Some(super::client::checked_name(word)?);
            } else {
                return Err(syntax(option));
            }
        }
        if self.stranger(thread.shared) {
            return Err(Reply::error(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
                 <proto> AUTH <user> <pass> option can be used to authenticate the client and select the \
                 RESP protocol version at the same time",
            ));
        }
        if let Some(name) = name {
            self.client.labels.lock().name = name;
        }
        self.set_protocol(protocol);
        Ok(())
    }

    fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
        self.client.protocol.store(if protocol == Protocol::Resp3 { 3 } else { 2 }, Ordering::Relaxed);
    }

    fn introduction(&self, thread: &ThreadContext<'_>) -> Reply {
        let text = |text: &'static str| Reply::bulk(text);
        Reply::Map(vec![
            (text("server"), text("redis")),
            (text("version"), text(redis_surface::REDIS_VERSION)),
            (text("proto"), Reply::Integer(if self.protocol == Protocol::Resp3 { 3 } else { 2 })),
            (text("id"), Reply::Integer(self.client.id as i64)),
            (text("mode"), text(super::info::mode(thread))),
            (text("role"), text(super::info::role(thread, "replica"))),
            (text("modules"), Reply::Array(Vec::new())),
        ])
    }

    pub(super) fn reset(&mut self, thread: &ThreadContext<'_>) -> Reply {
        self.end_block();
        thread.shared.runtime.reset(self.id);
        self.unsubscribe_from_all(thread.shared);
        self.track_no_more(thread.shared);
        self.monitor_no_more(thread.shared);
        self.set_protocol(Protocol::Resp2);
        self.speech = Speech::On;
        self.become_default(thread.shared);
        thread.shared.clients.set_no_evict(&self.client, false);
        self.note_readonly(false);
        self.client.labels.lock().name.clear();
        Reply::Status("RESET".into())
    }
}

fn syntax(option: &[u8]) -> Reply {
    Reply::error_owned(format!("ERR Syntax error in HELLO option '{}'", String::from_utf8_lossy(option)))
}
