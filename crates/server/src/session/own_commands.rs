//! Commands of the connection itself: which part of the session answers each.

use super::{
    Session, ThreadContext, acl, admin, backup, calls, channels, config, durability, info, memory, observe,
};
use redis_surface::table::{ConnectionCommand, OrdoBackupCommand, OrdoClusterCommand};
use txn::{Args, Reply};

impl Session {
    /// Runs a command of the connection itself. `None` if it is answered later, or never.
    pub(super) fn own_command(
        &mut self,
        thread: &mut ThreadContext<'_>,
        command: ConnectionCommand,
        argv: &Args,
    ) -> Option<Reply> {
        if self.listen(thread, command, argv) {
            return None;
        }
        match command {
            ConnectionCommand::Multi => Some(self.multi()),
            ConnectionCommand::Exec => self.exec(thread),
            ConnectionCommand::Discard => Some(self.discard()),
            ConnectionCommand::Watch => self.watch(thread, argv),
            ConnectionCommand::Quit => {
                self.answer(thread, &Reply::OK);
                self.close_after_replies();
                None
            }
            ConnectionCommand::Reset => Some(self.reset(thread)),
            ConnectionCommand::Monitor => Some(self.monitor(thread)),
            ConnectionCommand::Shutdown => self.shutdown(thread, argv),
            ConnectionCommand::ClientReply => self.set_speech(&argv[2]),
            ConnectionCommand::ClientTracking => self.track(thread, &argv[2..]),
            ConnectionCommand::Save => {
                self.save(thread);
                None
            }
            ConnectionCommand::WaitAof => self.wait_for_disk(thread, &argv[1..]),
            ConnectionCommand::AclLoad => self.load_users(thread),
            ConnectionCommand::ConfigSet => match config::set(thread, &argv[2..]) {
                Reply::Status(_) if config::names(argv, "requirepass") => self.set_default_password(thread),
                reply => Some(reply),
            },
            ConnectionCommand::OrdoCluster(change)
                if !matches!(change, OrdoClusterCommand::Status | OrdoClusterCommand::Map) =>
            {
                self.change_cluster(thread, change, argv)
            }
            ConnectionCommand::OrdoBackup(read) if read != OrdoBackupCommand::Where => {
                self.read_for_backup(thread, read, argv)
            }
            plain => Some(self.value_command(thread, plain, argv)),
        }
    }

    /// Runs a command of the connection itself that does nothing but reply: what a block may hold as well.
    pub(super) fn value_command(
        &mut self,
        thread: &mut ThreadContext<'_>,
        command: ConnectionCommand,
        argv: &Args,
    ) -> Reply {
        use ConnectionCommand as C;
        match command {
            C::AclWhoAmI => self.who_am_i(),
            C::AclGenPass => acl::generate_password(argv),
            C::AclLog => acl::log(thread, argv),
            C::AclSave => acl::save_users(thread),
            C::Auth => self.auth(thread, argv),
            C::Hello => self.hello(thread, argv),
            C::ConfigGet => config::get(thread, &argv[2..]),
            C::ConfigSet => config::set(thread, &argv[2..]),
            C::ConfigResetStat => config::reset_stat(thread),
            C::ConfigRewrite => config::rewrite(thread),
            C::Info => info::command(thread, argv, self.identity.reads_all_keys()),
            C::SlowLog(command) => observe::slow_log(thread, command, argv),
            C::Latency(command) => observe::latency(thread, command, argv),
            C::Memory(command) => memory::command(thread, command),
            C::Monitor => calls::NO_MONITOR_IN_BLOCK,
            C::BgSave | C::BgRewriteAof => admin::background_save(thread, command, argv),
            C::Wait => durability::wait(thread, &argv[1..]),
            C::LastSave => admin::last_save(thread),
            C::Role => info::role_command(thread),
            C::ScriptKill | C::FunctionKill => admin::script_kill(thread),
            C::PubSub(command) => Session::pubsub(thread, command, argv),
            C::Unwatch => self.unwatch(),
            C::Cluster(command) => Session::cluster(thread, command, argv),
            C::OrdoCluster(OrdoClusterCommand::Status) => Session::cluster_status(thread),
            C::OrdoCluster(OrdoClusterCommand::Map) => Session::cluster_map(thread, argv),
            C::OrdoBackup(OrdoBackupCommand::Where) => backup::place(thread),
            C::OrdoChanges => backup::changes(thread),
            C::Asking => Session::asking(thread),
            C::ReadOnly => self.set_readonly(thread, true),
            C::ReadWrite => self.set_readonly(thread, false),
            C::WaitAof => durability::synced_now(thread, &argv[1..]),
            C::SSubscribe => channels::NO_SHARDS_IN_BLOCK,
            C::AclLoad
            | C::Multi
            | C::Exec
            | C::Discard
            | C::Watch
            | C::Quit
            | C::Reset
            | C::Save
            | C::Shutdown
            | C::Subscribe
            | C::Unsubscribe
            | C::PSubscribe
            | C::PUnsubscribe
            | C::SUnsubscribe
            | C::ClientTracking
            | C::OrdoBackup(_)
            | C::OrdoCluster(_) => redis_surface::errors::NOT_IN_BLOCK,
            client => self.client_command(thread, client, argv),
        }
    }

    /// SUBSCRIBE and its kin answer for themselves, once for each channel. False if the command is none of
    /// them.
    fn listen(&mut self, thread: &ThreadContext<'_>, command: ConnectionCommand, argv: &Args) -> bool {
        let Some(confirmed) = self.confirmations(thread, command, &argv[1..]) else {
            return false;
        };
        for confirmed in confirmed {
            thread.counters.note_reply(&confirmed);
            // A push, as in Redis: CLIENT REPLY does not silence it.
            self.replies.push(&confirmed, self.protocol);
        }
        true
    }
}
