//! SAVE and its relatives, SHUTDOWN, MEMORY, DEBUG, SCRIPT KILL.

use super::{Hold, Session, ThreadContext, is_word};
use crate::shared::Stopping;
use redis_surface::errors;
use redis_surface::script::RunningScript;
use redis_surface::table::ConnectionCommand;
use std::sync::atomic::Ordering;
use txn::{Args, Blob, Reply};

impl Session {
    /// SAVE: answered once its checkpoint is written.
    pub(super) fn save(&mut self, thread: &ThreadContext<'_>) {
        // A checkpoint that is being written already may lack this connection's last writes: wait for one
        // more.
        let missing = if thread.shared.start_save() { 1 } else { 2 };
        self.hold = Some(Hold::Save(thread.shared.saves_ended() + missing));
    }

    /// What SAVE answers once its checkpoint ended.
    pub(super) fn saved(thread: &ThreadContext<'_>) -> Reply {
        if thread.shared.last_save_ok.load(Ordering::Relaxed) {
            Reply::OK
        } else {
            Reply::error("ERR the checkpoint could not be written: the server's log output says why")
        }
    }

    /// SHUTDOWN. `None` when the server stops: there is nobody to answer.
    pub(super) fn shutdown(&mut self, thread: &ThreadContext<'_>, argv: &Args) -> Option<Reply> {
        let mut how = Stopping::Plain;
        let has = |name: &str| argv[1..].iter().any(|word| is_word(word, name));
        let known = ["save", "nosave", "now", "force", "abort"];
        let is_known = |word: &Blob| known.iter().any(|known| is_word(word, known));
        let contradicts = has("save") && has("nosave") || has("abort") && argv.len() > 2;
        if contradicts || !argv[1..].iter().all(is_known) {
            return Some(errors::SYNTAX);
        }
        if has("abort") {
            return Some(Reply::error("ERR No shutdown in progress."));
        }
        if has("save") {
            how = Stopping::Save;
        }
        thread.shared.stop(how);
        self.close_after_replies();
        None
    }
}

/// BGSAVE [SCHEDULE] and BGREWRITEAOF: a checkpoint is what Redis has two files for.
pub(super) fn background_save(thread: &ThreadContext<'_>, command: ConnectionCommand, argv: &Args) -> Reply {
    match &argv[1..] {
        [] => {}
        [word] if is_word(word, "schedule") => {}
        _ => return errors::SYNTAX,
    }
    match (thread.shared.start_save(), command) {
        (true, ConnectionCommand::BgSave) => Reply::Status("Background saving started".into()),
        (true, _) => Reply::Status("Background append only file rewriting started".into()),
        (false, ConnectionCommand::BgSave) => Reply::error("ERR Background save already in progress"),
        (false, _) => Reply::error("ERR Background append only file rewriting already in progress"),
    }
}

/// LASTSAVE.
pub(super) fn last_save(thread: &ThreadContext<'_>) -> Reply {
    Reply::Integer(thread.shared.last_save_s() as i64)
}

/// SCRIPT KILL and FUNCTION KILL: stop the scripts and functions that run at snapshots. One that is ordered
/// must run to the same end everywhere, which is its step limit at the latest.
pub(super) fn script_kill(thread: &ThreadContext<'_>) -> Reply {
    // Asked first: a script that has just ended must not pass for an ordered one.
    let running = redis_surface::script::is_running();
    if thread.shared.runtime.interrupt_reads() {
        Reply::OK
    } else if !running || !redis_surface::script::is_running() {
        Reply::error("NOTBUSY No scripts in execution right now.")
    } else if thread.shared.runtime.interrupt_reads() {
        // It had just begun.
        Reply::OK
    } else {
        let running = redis_surface::script::running();
        let told: Vec<String> = running.iter().map(|run| told_of(thread, run)).collect();
        let told = match told.is_empty() {
            true => "it has just ended".to_owned(),
            false => told.join("; "),
        };
        Reply::error_owned(format!(
            "UNKILLABLE Sorry the script is in the order already: it ends by itself, at its step limit at \
             the latest. SCRIPT KILL and FUNCTION KILL end only what EVAL_RO, EVALSHA_RO or FCALL_RO began \
             beside the order: with the keys of one partition, and no unanswered write of its connection \
             before it. What runs: {told}"
        ))
    }
}

/// What an operator wants to know of a script that runs: which, since when, and whose.
fn told_of(thread: &ThreadContext<'_>, run: &RunningScript) -> String {
    let age_ms = thread.clocks.steady_ms().saturating_sub(run.time_ms);
    let mut told = format!("{run}, ordered {}.{:03} s ago", age_ms / 1000, age_ms % 1000);
    if let Some(request) = run.request {
        let clients = thread.shared.clients.all();
        let client = clients.iter().find(|client| client.session == request.session);
        told.push_str(&match client {
            Some(client) => format!(" by client id={} addr={}", client.id, client.address),
            None => " by a client that is gone, or another node's".to_owned(),
        });
    }
    told
}
