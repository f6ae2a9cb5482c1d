//! CLIENT and its subcommands.

use super::{Session, Speech, ThreadContext, is_word};
use crate::hub::Delivery;
use crate::net::clients::Client;
use redis_surface::commands::options;
use redis_surface::errors;
use redis_surface::table::ConnectionCommand;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use txn::{Args, Blob, Reply};

const NOT_AN_INTEGER: Reply = errors::NOT_AN_INTEGER;

/// A name or label without characters that would break CLIENT LIST's format.
pub(crate) fn checked_name(word: &[u8]) -> Result<String, Reply> {
    if word.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        Ok(String::from_utf8_lossy(word).into_owned())
    } else {
        Err(Reply::error("ERR Client names cannot contain spaces, newlines or special characters."))
    }
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// A switch that is `on` or `off`.
fn switch(word: &[u8]) -> Option<bool> {
    if is_word(word, "on") {
        Some(true)
    } else if is_word(word, "off") {
        Some(false)
    } else {
        None
    }
}

impl Session {
    /// Runs a subcommand of CLIENT.
    pub(super) fn client_command(
        &mut self,
        thread: &mut ThreadContext<'_>,
        command: ConnectionCommand,
        argv: &Args,
    ) -> Reply {
        use ConnectionCommand as C;
        match (command, argv.get(2..).unwrap_or_default()) {
            (C::ClientId, _) => Reply::Integer(self.client.id as i64),
            (C::ClientGetName, _) => {
                let name = self.client.labels.lock().name.clone();
                if name.is_empty() { Reply::Nil } else { Reply::bulk(name) }
            }
            (C::ClientSetName, [name]) => match checked_name(name) {
                Ok(name) => {
                    self.client.labels.lock().name = name;
                    Reply::OK
                }
                Err(error) => error,
            },
            (C::ClientSetInfo, [attribute, value]) => self.set_info(attribute, value),
            (C::ClientInfo, _) => {
                Reply::Verbatim("txt", Blob::from(format!("{}\n", self.client.line(thread.now_ms))))
            }
            (C::ClientList, filter) => list(thread, filter),
            (C::ClientKill, filter) => self.kill(thread, filter),
            (C::ClientReply, [mode]) => self.set_speech(mode).unwrap_or(Reply::OK),
            (C::ClientNoEvict, [mode]) => match switch(mode) {
                Some(on) => {
                    thread.shared.clients.set_no_evict(&self.client, on);
                    Reply::OK
                }
                None => errors::SYNTAX,
            },
            (C::ClientNoTouch, [mode]) if switch(mode).is_some() => Reply::OK,
            (C::ClientPause, [_, _, _, ..]) => errors::subcommand_syntax("CLIENT", &argv[1]),
            (C::ClientPause, [timeout, mode @ ..]) => pause(thread, timeout, mode),
            (C::ClientUnpause, _) => {
                thread.shared.pause.end();
                Reply::OK
            }
            (C::ClientUnblock, [id, how @ ..]) => unblock(thread, id, how),
            (C::ClientCaching, [word]) => self.caching(word),
            (C::ClientGetRedir, _) => self.redirection(),
            (C::ClientTrackingInfo, _) => self.tracking_info(),
            _ => errors::SYNTAX,
        }
    }

    fn set_info(&self, attribute: &[u8], value: &[u8]) -> Reply {
        let Ok(value) = checked_name(value) else {
            return Reply::error_owned(format!(
                "ERR {} cannot contain spaces, newlines or special characters.",
                String::from_utf8_lossy(attribute)
            ));
        };
        let mut labels = self.client.labels.lock();
        if is_word(attribute, "lib-name") {
            labels.library = value;
        } else if is_word(attribute, "lib-ver") {
            labels.library_version = value;
        } else {
            return Reply::error_owned(format!(
                "ERR Unrecognized option '{}'",
                String::from_utf8_lossy(attribute)
            ));
        }
        Reply::OK
    }

    /// CLIENT REPLY. `None` if it is not answered itself.
    pub(super) fn set_speech(&mut self, mode: &[u8]) -> Option<Reply> {
        if is_word(mode, "on") {
            self.speech = Speech::On;
            Some(Reply::OK)
        } else if is_word(mode, "off") {
            self.speech = Speech::Off;
            None
        } else if is_word(mode, "skip") {
            if self.speech != Speech::Off {
                self.speech = Speech::SkipNext;
            }
            None
        } else {
            Some(errors::SYNTAX)
        }
    }

    fn kill(&mut self, thread: &ThreadContext<'_>, filter: &[Blob]) -> Reply {
        // The old form names an address and answers OK; the new one filters and answers with a number.
        if let [address] = filter {
            let victim = thread
                .shared
                .clients
                .all()
                .into_iter()
                .find(|client| is_word(address, &client.address.to_string()));
            return match victim {
                Some(victim) => {
                    self.end(&victim);
                    Reply::OK
                }
                None => Reply::error("ERR No such client"),
            };
        }
        let filter = match Filter::parse(filter, true) {
            Ok(filter) => filter,
            Err(error) => return error,
        };
        if let Some(user) = &filter.user
            && thread.shared.acl.users().get(user.as_bytes()).is_none()
        {
            return Reply::error_owned(format!("ERR No such user '{user}'"));
        }
        let victims: Vec<_> = thread
            .shared
            .clients
            .all()
            .into_iter()
            .filter(|client| {
                filter.accepts(client, thread.now_ms) && !(filter.skip_me && client.id == self.client.id)
            })
            .collect();
        for victim in &victims {
            self.end(victim);
        }
        Reply::Integer(victims.len() as i64)
    }

    /// Closes a connection; this one after the reply.
    fn end(&mut self, victim: &Arc<Client>) {
        if victim.id == self.client.id {
            self.close_after_replies();
        } else {
            victim.kill();
        }
    }
}

/// A class of clients.
#[derive(Clone, Copy)]
enum ClientKind {
    Normal,
    /// Those that listen to channels.
    Listener,
    /// There are none: nodes reach each other in another way.
    Replica,
}

/// Which clients CLIENT LIST and CLIENT KILL mean.
#[derive(Default)]
struct Filter {
    ids: Option<Vec<u64>>,
    user: Option<String>,
    address: Option<String>,
    local_address: Option<String>,
    kind: Option<ClientKind>,
    skip_me: bool,
    older_than_s: Option<u64>,
}

/// The options of CLIENT LIST.
const OPTIONS: &[&str] = &["id", "type", "user", "addr", "laddr", "maxage", "skipme"];

impl Filter {
    fn parse(words: &[Blob], kill: bool) -> Result<Filter, Reply> {
        let mut filter = Filter { skip_me: kill, ..Filter::default() };
        let mut rest = words;
        while let [option, value, tail @ ..] = rest {
            let text = String::from_utf8_lossy(value).into_owned();
            rest = tail;
            if is_word(option, "id") && kill {
                let id = number(value).filter(|&id| id > 0);
                let id = id.ok_or(Reply::error("ERR client-id should be greater than 0"))?;
                filter.ids.get_or_insert_default().push(id);
            } else if is_word(option, "id") {
                // Several after one ID, up to the next option.
                let is_option = |word: &Blob| OPTIONS.iter().any(|name| is_word(word, name));
                let others = rest.iter().take_while(|word| !is_option(word)).count();
                let (others, tail) = rest.split_at(others);
                rest = tail;
                for word in std::iter::once(value).chain(others) {
                    let id = options::integer(word);
                    let id = id.map_err(|_| Reply::error("ERR Invalid client ID"))?;
                    // Nobody has a negative one.
                    filter.ids.get_or_insert_default().push(id.max(0) as u64);
                }
            } else if is_word(option, "type") {
                filter.kind = Some(match text.to_ascii_lowercase().as_str() {
                    "normal" => ClientKind::Normal,
                    "pubsub" => ClientKind::Listener,
                    "master" | "replica" | "slave" => ClientKind::Replica,
                    _ => {
                        return Err(Reply::error_owned(format!("ERR Unknown client type '{text}'")));
                    }
                });
            } else if is_word(option, "user") {
                filter.user = Some(text);
            } else if is_word(option, "addr") {
                filter.address = Some(text);
            } else if is_word(option, "laddr") {
                filter.local_address = Some(text);
            } else if is_word(option, "maxage") {
                filter.older_than_s = Some(number(value).ok_or(NOT_AN_INTEGER)?);
            } else if is_word(option, "skipme") {
                filter.skip_me = match text.to_ascii_lowercase().as_str() {
                    "yes" => true,
                    "no" => false,
                    _ => return Err(errors::SYNTAX),
                };
            } else {
                return Err(errors::SYNTAX);
            }
        }
        if rest.is_empty() { Ok(filter) } else { Err(errors::SYNTAX) }
    }

    fn accepts(&self, client: &Client, now_ms: u64) -> bool {
        let is_of_kind = |kind: ClientKind| match kind {
            ClientKind::Normal => !client.listens(),
            ClientKind::Listener => client.listens(),
            ClientKind::Replica => false,
        };
        self.kind.is_none_or(is_of_kind)
            && self.user.as_ref().is_none_or(|user| client.user.lock().as_bytes() == user.as_bytes())
            && self.ids.as_ref().is_none_or(|ids| ids.contains(&client.id))
            && self.address.as_ref().is_none_or(|address| *address == client.address.to_string())
            && self.local_address.as_ref().is_none_or(|address| *address == client.local_address.to_string())
            && self
                .older_than_s
                .is_none_or(|age_s| now_ms.saturating_sub(client.connected_ms) / 1000 >= age_s)
    }
}

fn list(thread: &ThreadContext<'_>, filter: &[Blob]) -> Reply {
    let filter = match Filter::parse(filter, false) {
        Ok(filter) => filter,
        Err(error) => return error,
    };
    let mut text = String::new();
    for client in thread.shared.clients.all() {
        if filter.accepts(&client, thread.now_ms) {
            text.push_str(&client.line(thread.now_ms));
            text.push('\n');
        }
    }
    Reply::Verbatim("txt", Blob::from(text))
}

/// CLIENT UNBLOCK.
fn unblock(thread: &ThreadContext<'_>, id: &Blob, how: &[Blob]) -> Reply {
    let with_error = match how {
        [] => false,
        [word] if is_word(word, "timeout") => false,
        [word] if is_word(word, "error") => true,
        _ => {
            return Reply::error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
        }
    };
    let Some(id) = number(id) else {
        return NOT_AN_INTEGER;
    };
    let waiting = thread.shared.clients.by_id(id);
    let waiting = waiting.filter(|client| client.blocked.load(Ordering::SeqCst));
    Reply::Integer(match waiting {
        Some(client) => {
            let wait = client.waits.load(Ordering::SeqCst);
            let delivery = Delivery::Unblock { wait, with_error };
            client.mailbox.deliver(client.session, delivery);
            1
        }
        None => 0,
    })
}

fn pause(thread: &ThreadContext<'_>, timeout: &Blob, mode: &[Blob]) -> Reply {
    let writes_only = match mode {
        [] => false,
        [word] if is_word(word, "all") => false,
        [word] if is_word(word, "write") => true,
        _ => return Reply::error("ERR CLIENT PAUSE mode must be WRITE or ALL"),
    };
    match options::timeout_ms(timeout) {
        Ok(timeout_ms) => {
            let until_ms = thread.now_ms.saturating_add(timeout_ms);
            thread.shared.pause.pause(until_ms, writes_only, thread.now_ms);
            Reply::OK
        }
        Err(error) => error,
    }
}
