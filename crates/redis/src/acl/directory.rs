//! All users, as a record of the system space keeps them, and as a node knows them.
//!
//! The record is a hash. A field is a user's name, its value the user's *incarnation* (a varint) and what
//! [`User::encode`] gives. A user that is deleted and made again has another incarnation, and so have all but
//! `default` after ACL LOAD: connections of the earlier one end. The field of one zero byte, which is no
//! name, counts incarnations.

use super::user::{DEFAULT_USER, User};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use txn::codec::{Reader, put_varint};
use txn::value::HashValue;
use txn::{Blob, BlobRef, Key, Position, Reply, Value};

const COUNTER: &[u8] = b"\0";
/// How many decoded users a thread keeps.
const DECODED_MAX: usize = 64;

/// The record of all users.
pub fn key() -> Key {
    Key::system(b"acl:users")
}

thread_local! {
    /// Users that this thread has decoded last: a function of their bytes, so nobody sees where it was
    /// computed.
    static DECODED: RefCell<Vec<(Blob, Arc<User>)>> = const { RefCell::new(Vec::new()) };
}

fn decoded(bytes: &[u8]) -> Arc<User> {
    DECODED.with_borrow_mut(|known| {
        if let Some((_, user)) = known.iter().find(|(of, _)| of.as_bytes() == bytes) {
            return user.clone();
        }
        let mut reader = Reader::new(bytes);
        let user = reader.varint().and_then(|_| User::decode(reader.rest()));
        // What cannot be read may do nothing, and nobody can come as it.
        let user = Arc::new(user.unwrap_or_else(|| User::new(false)));
        if known.len() == DECODED_MAX {
            known.remove(0);
        }
        known.push((Blob::new(bytes), user.clone()));
        user
    })
}

fn incarnation_of(field: &[u8]) -> u64 {
    Reader::new(field).varint().unwrap_or(0)
}

/// The record, to look one user up or to change some: what it costs depends on these.
pub(super) struct Record(HashValue);

impl Record {
    pub fn of(value: Option<&Value>) -> Record {
        Record(match value {
            Some(Value::Hash(fields)) => fields.clone(),
            _ => HashValue::new(),
        })
    }

    pub fn into_value(self) -> Value {
        Value::from(self.0)
    }

    pub fn user(&self, name: &[u8]) -> Option<Arc<User>> {
        self.0.get(name).filter(|_| name != COUNTER).map(|user| decoded(&user))
    }

    /// Gives a name a user: the same one with other rights, if it was there.
    pub fn put(&mut self, name: &Blob, user: &User) {
        let incarnation = match self.0.get(name) {
            Some(field) => incarnation_of(&field),
            // Connections have it before anybody made it.
            None if name.as_bytes() == DEFAULT_USER => 0,
            None => {
                let next = self.0.get(COUNTER).map_or(0, |counter| incarnation_of(&counter)) + 1;
                self.put_field(&Blob::new(COUNTER), next, &[]);
                next
            }
        };
        self.put_field(name, incarnation, &user.encode());
    }

    fn put_field(&mut self, name: &Blob, incarnation: u64, user: &[u8]) {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, incarnation);
        bytes.extend_from_slice(user);
        self.0.insert(name.clone(), Blob::from(bytes));
    }

    pub fn remove(&mut self, name: &[u8]) -> bool {
        name != COUNTER && self.0.remove(name)
    }

    /// Puts these users in place of all. `default` has all rights if it is none of these.
    pub fn replace(&mut self, users: &[(Blob, User)]) {
        let counter = self.0.get(COUNTER).map(BlobRef::to_blob);
        self.0 = counter.map(|count| (Blob::new(COUNTER), count)).into_iter().collect();
        self.put(&Blob::new(DEFAULT_USER), &User::default_user(None));
        for (name, user) in users {
            self.put(name, user);
        }
    }
}

fn position(version: i64) -> Position {
    Position(version.cast_unsigned())
}

/// A user as a connection has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its incarnation; 0 for `default`, which is never deleted.
    pub incarnation: u64,
    /// What it may do.
    pub user: Arc<User>,
}

/// All users at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    users: BTreeMap<Blob, Member>,
    /// Somebody has changed the user `default`.
    has_default: bool,
}

impl Directory {
    /// Reads a record. As long as it does not have `default`, that is this user.
    pub fn of(record: Option<&Value>, default: &Arc<User>) -> Directory {
        let mut all = Directory { users: BTreeMap::new(), has_default: false };
        if let Some(Value::Hash(fields)) = record {
            for (name, bytes) in fields.iter() {
                if name.as_bytes() == COUNTER {
                    continue;
                }
                let (incarnation, user) = (incarnation_of(&bytes), decoded(&bytes));
                all.users.insert(name.to_blob(), Member { incarnation, user });
            }
        }
        all.has_default = all.users.contains_key(DEFAULT_USER);
        if !all.has_default {
            let user = default.clone();
            all.users.insert(Blob::new(DEFAULT_USER), Member { incarnation: 0, user });
        }
        all
    }

    /// A record as a reply: its fields and values in a row.
    pub(super) fn record_to_reply(record: Option<&Value>) -> Reply {
        match record {
            Some(Value::Hash(fields)) => {
                let words = fields.iter().flat_map(|(name, user)| [name, user]);
                Reply::Array(words.map(|word| Reply::Bulk(word.to_blob())).collect())
            }
            _ => Reply::Array(Vec::new()),
        }
    }

    /// Reads the reply of [`super::ReadUsersProcedure`]: the version of the record, and the users if it is
    /// another one than was known. `None` if it is no such reply.
    pub fn of_reply(reply: &Reply, default: &Arc<User>) -> Option<(Position, Option<Directory>)> {
        let Reply::Array(parts) = reply else {
            return None;
        };
        let (version, words) = match &parts[..] {
            [Reply::Integer(version)] => return Some((position(*version), None)),
            [Reply::Integer(version), Reply::Array(words)] => (position(*version), words),
            _ => return None,
        };
        let (pairs, rest) = words.as_chunks::<2>();
        let field = |pair: &[Reply; 2]| match pair {
            [Reply::Bulk(name), Reply::Bulk(user)] => Some((name.clone(), user.clone())),
            _ => None,
        };
        let fields: HashValue = pairs.iter().map(field).collect::<Option<_>>()?;
        let record = (!fields.is_empty()).then(|| Value::from(fields));
        let users = || Directory::of(record.as_ref(), default);
        rest.is_empty().then(|| (version, Some(users())))
    }

    /// Whether the record has `default`: it is what nodes' settings say otherwise.
    pub fn has_default(&self) -> bool {
        self.has_default
    }
    /// The same with another user `default`, as long as nobody has changed that.
    pub fn with_default(&self, default: &Arc<User>) -> Directory {
        let mut all = self.clone();
        if !all.has_default {
            let member = Member { incarnation: 0, user: default.clone() };
            all.users.insert(Blob::new(DEFAULT_USER), member);
        }
        all
    }
    /// The users by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Blob, &Member)> {
        self.users.iter()
    }
    /// The user with a name.
    pub fn get(&self, name: &[u8]) -> Option<&Member> {
        self.users.get(name)
    }

    /// The lines of the ACL file, and of ACL LIST.
    pub fn lines(&self) -> impl Iterator<Item = Vec<u8>> {
        let line = |(name, member): (&Blob, &Member)| {
            [b"user ", name.as_bytes(), b" ", &member.user.description()].concat()
        };
        self.users.iter().map(line)
    }
}
