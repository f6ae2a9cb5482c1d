//! Transactions that depend on users: `redis.acting`.
//!
//! A request of it carries a header (who acts, and what the acting node's settings say of users) and what is
//! to be done: a command, a block, or users that take the place of all. A command that met a node short of
//! memory says so in the header (a block does in its own): what `redis.short-of-memory` does for those who
//! may do everything ([`crate::short`]). The reply is an array of the reply for the client, the [`Denial`]s
//! for the node's log, and whether users were changed; [`Done::from_reply`] takes it apart.

use super::check::{Denied, check, sort_denied};
use super::directory::{Directory, Record, key};
use super::user::{DEFAULT_USER, User};
use crate::block::{self, Block};
use crate::execute::{Caller, Memory, Terms, execute};
use crate::table::{self, Resolved};
use crate::telling::telling;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use txn::codec::{Reader, put_bytes};
use txn::{
    Args, Blob, Call, Footprint, Intent, KeySets, Outcome, Position, Procedure, ProcedureFuture, Reply, Stop,
    Tx,
};

const VERSION: u8 = 1;
/// Different denials that one transaction tells of, at most.
const DENIALS_MAX: usize = 32;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A command, and whether there was memory for more when it was admitted: what it runs depends on it.
    Command(Args, Memory),
    /// A block.
    Block(Block),
    /// These users take the place of all: ACL LOAD.
    Replace(Vec<(Blob, User)>),
    /// These users are made, if no users have been made before.
    Introduce(Vec<(Blob, User)>),
}

/// A transaction that depends on users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acting {
    /// Whose rights count; `None` if everything is allowed.
    pub user: Option<Blob>,
    /// `default`, as long as nobody has changed it.
    pub default: Arc<User>,
    /// Whether new users and selectors have all channels (`acl-pubsub-default`).
    pub all_channels: bool,
    /// What it does.
    pub deed: Deed,
}

impl Acting {
    /// The arguments of `redis.acting`.
    pub fn to_args(&self) -> Args {
        let mut header = vec![VERSION];
        header.push(u8::from(self.all_channels) | u8::from(self.user.is_some()) << 1);
        put_bytes(&mut header, self.user.as_ref().map_or(&[], Blob::as_bytes));
        put_bytes(&mut header, &self.default.encode());
        let of_users = |users: &[(Blob, User)]| {
            let words = users.iter();
            words.flat_map(|(name, user)| [name.clone(), Blob::from(user.encode())]).collect()
        };
        let (kind, words): (u8, Args) = match &self.deed {
            Deed::Command(argv, Memory::Ample) => (0, argv.clone()),
            Deed::Command(argv, Memory::Short) => (4, argv.clone()),
            Deed::Block(block) => (1, block.to_args()),
            Deed::Replace(users) => (2, of_users(users)),
            Deed::Introduce(users) => (3, of_users(users)),
        };
        header.push(kind);
        Args(std::iter::once(Blob::from(header)).chain(words.0).collect())
    }

    /// What the arguments describe; `None` if they describe nothing.
    pub fn from_args(args: &[Blob]) -> Option<Acting> {
        let (header, words) = args.split_first()?;
        let mut header = Reader::new(header);
        if header.u8()? != VERSION {
            return None;
        }
        let flags = header.u8()?;
        let user = header.blob()?;
        let default = Arc::new(User::decode(header.bytes()?)?);
        let users = || -> Option<Vec<(Blob, User)>> {
            let (pairs, rest) = words.as_chunks::<2>();
            let user = |[name, user]: &[Blob; 2]| Some((name.clone(), User::decode(user)?));
            match rest {
                [] => pairs.iter().map(user).collect(),
                _ => None,
            }
        };
        let deed = match header.u8()? {
            0 => Deed::Command(words.iter().cloned().collect(), Memory::Ample),
            1 => Deed::Block(Block::from_args(words)?),
            2 => Deed::Replace(users()?),
            3 => Deed::Introduce(users()?),
            4 => Deed::Command(words.iter().cloned().collect(), Memory::Short),
            _ => return None,
        };
        header.is_empty().then_some(Acting {
            user: (flags & 2 != 0).then_some(user),
            default,
            all_channels: flags & 1 != 0,
            deed,
        })
    }

    /// What it touches. Without the keys (`with_keys` false) it is cheap.
    pub fn footprint(&self, with_keys: bool) -> Footprint {
        let inner = match &self.deed {
            Deed::Command(argv, _) => {
                let commands = vec![argv.clone()];
                let block = Block { commands, ..Block::default() };
                block.footprint(with_keys)
            }
            Deed::Block(block) => block.footprint(with_keys),
            Deed::Replace(_) | Deed::Introduce(_) => Footprint::of_keys(Vec::new(), vec![key()]),
        };
        let keys = inner.keys.filter(|_| with_keys).map(|keys| {
            let mut sets = KeySets::clone(&keys);
            sets.reads.push(key());
            table::normalize(&mut sets);
            Arc::new(sets)
        });
        Footprint { keys, ..inner }
    }
}

/// Where a command was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// Sent by itself.
    Toplevel,
    /// In a block.
    Multi,
    /// In a script.
    Lua,
}

impl Context {
    const ALL: [Context; 3] = [Context::Toplevel, Context::Multi, Context::Lua];

    /// ACL LOG's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Context::Toplevel => "toplevel",
            Context::Multi => "multi",
            Context::Lua => "lua",
        }
    }
}

/// Something that a user was not allowed, for ACL LOG.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Where.
    pub context: Context,
    /// Why: `command`, `key`, `channel` or `auth`.
    pub reason: Blob,
    /// Which command, key or channel.
    pub object: Blob,
}

impl Denial {
    /// A denial of the command `argv`.
    pub fn of(context: Context, denied: Denied, resolved: &Resolved, argv: &[Blob]) -> Denial {
        let (reason, object) = denied.reason_and_object(resolved.command, argv);
        Denial { context, reason: Blob::from(reason), object }
    }
}

/// On whose behalf a transaction's commands run. Cheap to clone; the default is somebody who may do
/// everything.
#[derive(Clone, Default)]
pub struct Actor {
    acts: Option<Arc<Acts>>,
    /// What it may do, as of when it was looked at last; `None`: everything.
    rights: Option<Arc<User>>,
}

struct Acts {
    user: Option<Blob>,
    default: Arc<User>,
    all_channels: bool,
    denials: Mutex<Vec<Denial>>,
    has_changed_users: AtomicBool,
}

impl Actor {
    fn of(acting: &Acting) -> Actor {
        Actor {
            acts: Some(Arc::new(Acts {
                user: acting.user.clone(),
                default: acting.default.clone(),
                all_channels: acting.all_channels,
                denials: Mutex::default(),
                has_changed_users: AtomicBool::new(false),
            })),
            rights: None,
        }
    }

    /// Whether it may do everything, whatever becomes of the users meanwhile.
    pub(crate) fn may_all(&self) -> bool {
        self.acts.is_none()
    }
    /// The same with the rights that it has now.
    pub(crate) async fn looking(&self, tx: &mut Tx) -> Result<Actor, Stop> {
        let Some(name) = self.acts.as_ref().and_then(|acts| acts.user.as_ref()) else {
            return Ok(self.clone());
        };
        let record = tx.get(&key()).await?;
        let user = match Record::of(record.as_ref()).user(name) {
            Some(user) => user,
            None if name.as_bytes() == DEFAULT_USER => self.default_user(),
            // It was deleted, and its connection is about to end.
            None => Arc::new(User::new(false)),
        };
        let rights = (!user.is_all_permitting()).then_some(user);
        Ok(Actor { acts: self.acts.clone(), rights })
    }

    /// `default`, as long as nobody has changed it.
    pub(super) fn default_user(&self) -> Arc<User> {
        match &self.acts {
            Some(acts) => acts.default.clone(),
            None => Arc::new(User::default_user(None)),
        }
    }
    /// Whether new users have all channels.
    pub(super) fn all_channels(&self) -> bool {
        self.acts.as_ref().is_some_and(|acts| acts.all_channels)
    }
    /// Users were changed.
    pub(super) fn has_changed_users(&self) {
        if let Some(acts) = &self.acts {
            acts.has_changed_users.store(true, Ordering::Relaxed);
        }
    }

    /// Whether it may run a command, which is not noted.
    pub(crate) fn may(&self, resolved: &Resolved, argv: &[Blob]) -> bool {
        let rights = self.rights.as_ref();
        rights.is_none_or(|user| check(user, resolved, argv).is_ok())
    }

    /// Checks a command; a denial is noted.
    fn check(&self, context: Context, resolved: &Resolved, argv: &[Blob]) -> Result<(), Denied> {
        let Some(user) = &self.rights else {
            return Ok(());
        };
        check(user, resolved, argv).inspect_err(|denied| {
            let Some(acts) = &self.acts else { return };
            let mut denials = locked(&acts.denials);
            let denial = Denial::of(context, *denied, resolved, argv);
            if denials.len() < DENIALS_MAX {
                denials.push(denial);
            }
        })
    }

    /// The error reply to a command of a block or a script that is not allowed.
    pub(crate) fn refusal(&self, caller: Caller, resolved: &Resolved, argv: &[Blob]) -> Option<Reply> {
        let user = self.rights.as_ref()?;
        let refused = match caller {
            Caller::Block => self.check(Context::Multi, resolved, argv).map_err(Denied::reply_in_block),
            Caller::Script { .. } => {
                self.check(Context::Lua, resolved, argv).map_err(Denied::reply_in_script)
            }
        };
        refused.err().or_else(|| sort_denied(user, resolved, argv))
    }
}

fn locked(denials: &Mutex<Vec<Denial>>) -> MutexGuard<'_, Vec<Denial>> {
    denials.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What came of a `redis.acting`.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// The client's reply.
    pub reply: Reply,
    /// What its user was not allowed.
    pub denials: Vec<Denial>,
    /// Users were changed.
    pub has_changed_users: bool,
}

impl Done {
    fn to_reply(reply: Reply, actor: &Actor) -> Reply {
        let Some(acts) = &actor.acts else {
            return reply;
        };
        let denials = locked(&acts.denials);
        let denials = denials.iter().map(|denial| {
            Reply::Array(vec![
                Reply::Integer(denial.context as i64),
                Reply::Bulk(denial.reason.clone()),
                Reply::Bulk(denial.object.clone()),
            ])
        });
        let changed = acts.has_changed_users.load(Ordering::Relaxed);
        Reply::Array(vec![reply, Reply::Array(denials.collect()), Reply::Boolean(changed)])
    }

    /// Takes the reply of a request apart. What is none of its replies (an error about the request) is for
    /// the client.
    pub fn from_reply(reply: Reply) -> Done {
        let denial = |reply: &Reply| match reply {
            Reply::Array(parts) => match &parts[..] {
                [Reply::Integer(context), Reply::Bulk(reason), Reply::Bulk(object)] => Some(Denial {
                    context: *Context::ALL.get(usize::try_from(*context).ok()?)?,
                    reason: reason.clone(),
                    object: object.clone(),
                }),
                _ => None,
            },
            _ => None,
        };
        match reply {
            Reply::Array(parts) => match <[Reply; 3]>::try_from(parts) {
                Ok([reply, Reply::Array(denials), Reply::Boolean(has_changed_users)]) => {
                    Done { reply, denials: denials.iter().filter_map(denial).collect(), has_changed_users }
                }
                Ok(parts) => Done::plain(Reply::Array(parts.to_vec())),
                Err(parts) => Done::plain(Reply::Array(parts)),
            },
            other => Done::plain(other),
        }
    }

    fn plain(reply: Reply) -> Done {
        Done { reply, denials: Vec::new(), has_changed_users: false }
    }
}

/// Runs an [`Acting`].
pub struct ActingProcedure;

impl Procedure for ActingProcedure {
    fn name(&self) -> &str {
        "redis.acting"
    }
    fn footprint(&self, args: &Args) -> Footprint {
        Acting::from_args(args).map_or_else(Footprint::unknown, |acting| acting.footprint(true))
    }
    fn run(&self, tx: Tx, call: Call) -> ProcedureFuture {
        telling("redis.acting", Box::pin(run(tx, call)))
    }
}

async fn run(mut tx: Tx, call: Call) -> Outcome {
    let Some(acting) = Acting::from_args(&call) else {
        return Ok(Reply::error("ERR malformed request: it was not made by this version's Acting::to_args"));
    };
    let actor = Actor::of(&acting);
    let reply = match acting.deed {
        Deed::Command(argv, memory) => {
            let actor = actor.looking(&mut tx).await?;
            command(tx, argv, Terms { actor, memory }).await?
        }
        Deed::Block(block) => block::run_as(tx, block, actor.clone()).await?,
        Deed::Replace(users) => {
            let mut record = Record::of(tx.get_for_update(&key()).await?.as_ref());
            record.replace(&users);
            tx.put(&key(), record.into_value()).await?;
            actor.has_changed_users();
            Reply::OK
        }
        Deed::Introduce(users) => {
            if tx.get_for_update(&key()).await?.is_none() {
                let mut record = Record::of(None);
                users.iter().for_each(|(name, user)| record.put(name, user));
                tx.put(&key(), record.into_value()).await?;
                actor.has_changed_users();
            }
            Reply::OK
        }
    };
    Ok(Done::to_reply(reply, &actor))
}

/// Runs a command by itself.
async fn command(tx: Tx, argv: Args, terms: Terms) -> Outcome {
    if let Ok(resolved) = table::resolve(&argv)
        && let Err(denied) = terms.actor.check(Context::Toplevel, &resolved, &argv)
    {
        return Ok(denied.reply(resolved.command));
    }
    execute(tx, argv, Caller::Block, terms).await
}

/// Reads the record of all users, for a node that knows it as of a version or not at all: see
/// [`Directory::of_reply`].
pub struct ReadUsersProcedure;

impl ReadUsersProcedure {
    /// The arguments: the version that is known.
    pub fn args(known: Option<Position>) -> Args {
        known.map_or_else(Args::new, |known| Args::one(&known.0.to_le_bytes()[..]))
    }
}

impl Procedure for ReadUsersProcedure {
    fn name(&self) -> &str {
        "redis.acl-users"
    }
    fn footprint(&self, _: &Args) -> Footprint {
        Footprint::of_keys(vec![key()], Vec::new())
    }
    fn run(&self, mut tx: Tx, call: Call) -> ProcedureFuture {
        Box::pin(async move {
            let read = tx.read(&key(), Intent::Read).await?;
            let version = Reply::Integer(read.version.0.cast_signed());
            if *call == ReadUsersProcedure::args(Some(read.version)) {
                return Ok(Reply::Array(vec![version]));
            }
            let record = read.entry.map(|entry| entry.value);
            let fields = Directory::record_to_reply(record.as_ref());
            Ok(Reply::Array(vec![version, fields]))
        })
    }
}
