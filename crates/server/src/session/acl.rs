//! Users of connections: who a connection is, what it may do, and the subcommands of ACL that are the node's
//! business.

use super::{Completion, Reach, Session, ThreadContext};
use crate::acl;
use crate::shared::Shared;
use redis_surface::acl::check::sort_denied;
use redis_surface::acl::{Acting, Context, DEFAULT_USER, Deed, Denial, Done, PasswordHash, User, check};
use redis_surface::commands::options;
use redis_surface::table::{self, Command, Resolved, Run};
use redis_surface::{Memory, errors};
use std::sync::Arc;
use txn::{Args, Blob, Reply};

const GENPASS_BITS: usize = 256;
const GENPASS_BITS_MAX: i64 = 4096;
const GENPASS_RANGE: Reply = Reply::error(
    "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to \
     4096",
);
const NO_FILE: Reply = Reply::error(
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the \
     ACL SETUSER command: they are part of the data. For a file, start the server with --aclfile",
);
/// How many entries ACL LOG shows unless it is told.
const LOG_SHOWN: usize = 10;

/// Who a connection is.
pub(super) struct Identity {
    name: Blob,
    /// See [`redis_surface::acl::Member::incarnation`].
    incarnation: u64,
    /// What it may do, unless it may do everything.
    rights: Option<Arc<User>>,
    /// As of which generation of the users.
    generation: u64,
    /// Its user is gone, or may not listen to what it listens to any more: it ends.
    is_gone: bool,
}

impl Identity {
    /// A new connection's: `default`.
    pub(super) fn new(shared: &Shared) -> Identity {
        let mut identity = Identity {
            name: Blob::new(DEFAULT_USER),
            incarnation: 0,
            rights: None,
            generation: 0,
            is_gone: false,
        };
        identity.look(shared);
        identity
    }

    /// Whether it may read every key.
    pub(super) fn reads_all_keys(&self) -> bool {
        self.rights.as_ref().is_none_or(|user| user.reads_all_keys())
    }

    fn look(&mut self, shared: &Shared) {
        // Before the users: what comes in between is looked at again.
        self.generation = shared.acl.generation();
        let users = shared.acl.users();
        match users.get(&self.name) {
            Some(member) if member.incarnation == self.incarnation => {
                let is_all = member.user.is_all_permitting();
                self.rights = (!is_all).then(|| member.user.clone());
            }
            _ => self.is_gone = true,
        }
    }
}

impl Session {
    /// Takes notice of what others did to its user.
    fn follow_users(&mut self, shared: &Shared) {
        if self.identity.generation == shared.acl.generation() {
            return;
        }
        let before = self.identity.rights.clone();
        self.identity.look(shared);
        if let Some(now) = &self.identity.rights {
            let before = before.unwrap_or_else(|| Arc::new(User::default_user(None)));
            let keeps = now.keeps_subscriber(&before, self.subscriptions.names());
            self.identity.is_gone |= !keeps;
        }
    }

    /// The connection's user is another one from now on.
    fn become_user(&mut self, shared: &Shared, name: &Blob, incarnation: u64) {
        self.identity =
            Identity { name: name.clone(), incarnation, rights: None, generation: 0, is_gone: false };
        self.identity.look(shared);
        *self.client.user.lock() = name.clone();
    }

    /// The connection's user is that of a new connection.
    pub(super) fn become_default(&mut self, shared: &Shared) {
        self.become_user(shared, &Blob::new(DEFAULT_USER), 0);
        self.authenticated = shared.acl.default_is_open();
    }

    /// Checks a user's password, and makes the connection that user's. `command` is for the log.
    pub(super) fn authenticate(
        &mut self,
        thread: &ThreadContext<'_>,
        command: &Blob,
        name: &Blob,
        password: &[u8],
    ) -> Result<(), Reply> {
        let _attempt = self.take_attempt(thread)?;
        let users = thread.shared.acl.users();
        // Before it is known whether there is such a user, which the time must not tell.
        let password = PasswordHash::of(password);
        match users.get(name) {
            Some(member) if member.user.accepts(&password) => {
                self.become_user(thread.shared, name, member.incarnation);
                self.authenticated = true;
                Ok(())
            }
            _ => {
                let denial =
                    Denial { context: self.context(), reason: Blob::from("auth"), object: command.clone() };
                self.note_denial(thread, name, denial);
                let address = self.client.address;
                thread.shared.auth_failures.note(address, name, thread.clocks.instant());
                Err(super::WRONG_PASSWORD)
            }
        }
    }

    /// Whether `default` takes any password.
    pub(super) fn default_needs_no_password(thread: &ThreadContext<'_>) -> bool {
        thread.shared.acl.default_needs_no_password()
    }

    /// Who the connection is.
    pub(super) fn user_name(&self) -> &Blob {
        &self.identity.name
    }

    fn context(&self) -> Context {
        match self.block {
            Some(_) => Context::Multi,
            None => Context::Toplevel,
        }
    }

    fn note_denial(&self, thread: &ThreadContext<'_>, user: &Blob, denial: Denial) {
        self.audit_denial(thread, user, &denial.reason, &denial.object);
        let client = self.client.line(thread.now_ms);
        let len_max = thread.config.acllog_max_len as usize;
        thread.shared.acl.note(user, denial, client, thread.clocks.wall_ms(), len_max);
    }

    /// Users have changed: ends the connection if its user is gone, or takes away what it listens to.
    pub(super) fn users_changed(&mut self, thread: &ThreadContext<'_>) {
        match self.user_is_gone(thread) {
            true if self.replies.awaits() => self.close_after_replies(),
            true => self.client.kill(),
            false => {}
        }
    }

    /// Whether the connection's user is gone, or takes away what it listens to, which ends it.
    #[inline]
    pub(super) fn user_is_gone(&mut self, thread: &ThreadContext<'_>) -> bool {
        self.follow_users(thread.shared);
        self.identity.is_gone
    }

    /// The error of a command that the connection's user may not run.
    #[inline]
    pub(super) fn denied(
        &mut self,
        thread: &ThreadContext<'_>,
        resolved: &Resolved,
        argv: &Args,
    ) -> Option<Reply> {
        let user = self.identity.rights.as_ref()?;
        match check(user, resolved, argv) {
            // What a block's SORT may name is asked when it runs.
            Ok(()) if self.block.is_some() => None,
            Ok(()) => sort_denied(user, resolved, argv),
            Err(denied) => {
                let denial = Denial::of(self.context(), denied, resolved, argv);
                self.note_denial(thread, &self.identity.name, denial);
                Some(denied.reply(resolved.command))
            }
        }
    }

    /// The error of a command that the connection's user could run when it began to wait, and cannot run any
    /// more.
    pub(super) fn denied_meanwhile(&mut self, thread: &ThreadContext<'_>, argv: &Args) -> Option<Reply> {
        self.follow_users(thread.shared);
        let resolved = table::resolve(argv).ok()?;
        self.denied(thread, &resolved, argv)
    }

    /// The error of a command of a block that the connection's user could run when it was queued, and cannot
    /// run any more.
    pub(super) fn denied_by_now(
        &mut self,
        thread: &ThreadContext<'_>,
        resolved: &Resolved,
        argv: &Args,
    ) -> Option<Reply> {
        self.follow_users(thread.shared);
        let user = self.identity.rights.as_ref()?;
        let denied = check(user, resolved, argv).err()?;
        let denial = Denial::of(Context::Multi, denied, resolved, argv);
        self.note_denial(thread, &self.identity.name, denial);
        Some(denied.reply_in_block())
    }

    /// Whether a command's outcome depends on what its user may do, or on users at all: then it carries who
    /// acts.
    pub(super) fn must_act(&self, command: &Command) -> bool {
        match command.run {
            Run::Acl(_) => true,
            Run::Idempotent => self.is_restricted(),
            Run::Script(command) => command.runs_code() && self.is_restricted(),
            _ => false,
        }
    }

    /// Whether the connection's user may not do everything.
    pub(super) fn is_restricted(&self) -> bool {
        self.identity.rights.is_some()
    }

    /// Runs a transaction in the name of the connection's user.
    pub(super) fn act(
        &mut self,
        thread: &mut ThreadContext<'_>,
        deed: Deed,
        reach: Reach,
        then: Option<Completion>,
    ) {
        let acting = Acting {
            user: self.is_restricted().then(|| self.identity.name.clone()),
            default: thread.shared.acl.settings_default(),
            all_channels: thread.config.all_channels_by_default(),
            deed,
        };
        let footprint = acting.footprint(false);
        let completion = Completion::Acted(then.map(Box::new));
        let procedure = thread.commands.acting.clone();
        self.transact(thread, procedure, acting.to_args(), footprint, reach, Some(completion));
    }

    /// Takes what came of it, and gives the reply for the client.
    pub(super) fn acted(&mut self, thread: &mut ThreadContext<'_>, reply: Reply) -> Reply {
        let done = Done::from_reply(reply);
        let name = self.identity.name.clone();
        for denial in done.denials {
            self.note_denial(thread, &name, denial);
        }
        if done.has_changed_users {
            thread.shared.refresh_users(thread.port, Some(self.client.id));
            if self.user_is_gone(thread) {
                self.close_after_replies();
            }
        }
        done.reply
    }

    /// ACL WHOAMI.
    pub(super) fn who_am_i(&self) -> Reply {
        Reply::Bulk(self.identity.name.clone())
    }

    /// ACL LOAD. `None` if it is answered later.
    pub(super) fn load_users(&mut self, thread: &mut ThreadContext<'_>) -> Option<Reply> {
        let Some(path) = thread.config.acl_path() else {
            return Some(NO_FILE);
        };
        match acl::read_file(&path, thread.config) {
            Ok(users) => {
                let reach = Reach::of(redis_surface::Involved::Everything);
                self.act(thread, Deed::Replace(users), reach, None);
                None
            }
            Err(error) => Some(Reply::error_owned(format!("ERR {error}"))),
        }
    }

    /// After CONFIG SET of `requirepass`: the user `default` gets it. `None` if it is answered later.
    pub(super) fn set_default_password(&mut self, thread: &mut ThreadContext<'_>) -> Option<Reply> {
        let password = thread.shared.settings.now().requirepass.clone();
        thread.shared.acl.set_password(&password);
        if !thread.shared.acl.users().has_default() {
            return Some(Reply::OK);
        }
        let argv = acl::password_rules(&password);
        let reach = Reach::of(redis_surface::Involved::Everything);
        self.act(thread, Deed::Command(argv, Memory::Ample), reach, None);
        None
    }
}

/// ACL SAVE.
pub(super) fn save_users(thread: &ThreadContext<'_>) -> Reply {
    let Some(path) = thread.config.acl_path() else {
        return NO_FILE;
    };
    match acl::write_file(&path, &thread.shared.acl.users()) {
        Ok(()) => Reply::OK,
        Err(error) => {
            tracing::error!("the ACL file {path} could not be written: {error}");
            Reply::error(
                "ERR There was an error trying to save the ACLs. Please check the server logs for more \
                 information",
            )
        }
    }
}

/// ACL GENPASS [bits]
pub(super) fn generate_password(argv: &Args) -> Reply {
    let bits = match &argv[2..] {
        [] => GENPASS_BITS,
        [bits] => match options::integer(bits) {
            Ok(bits @ 1..=GENPASS_BITS_MAX) => bits as usize,
            Ok(_) => return GENPASS_RANGE,
            Err(error) => return error,
        },
        _ => return errors::subcommand_syntax("ACL", &argv[1]),
    };
    match acl::random_password(bits) {
        Ok(password) => Reply::bulk(password),
        Err(error) => Reply::error_owned(format!(
            "ERR the system's source of chance (/dev/urandom) cannot be read: {error}"
        )),
    }
}

/// ACL LOG [count | RESET]
pub(super) fn log(thread: &ThreadContext<'_>, argv: &Args) -> Reply {
    let count = match &argv[2..] {
        [] => LOG_SHOWN,
        [word] if options::is(word, "reset") => {
            thread.shared.acl.forget();
            return Reply::OK;
        }
        [count] => match options::integer(count) {
            Ok(count) => usize::try_from(count).unwrap_or(0),
            Err(error) => return error,
        },
        _ => return errors::subcommand_syntax("ACL", &argv[1]),
    };
    thread.shared.acl.log(count, thread.clocks.wall_ms())
}
